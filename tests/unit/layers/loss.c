/* SPDX-License-Identifier: MIT
 *
 * The two ends of a language model: embedding, and softmax cross-entropy with its gradient.
 * Method: against the plain reference, tokens that repeat, vocabularies around the vector width, extreme logits.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernel_fixture.h"

enum { SEQ = 6, ROWS = 3 * SEQ, VOCABULARY = 11, POSITIONS = 9 };

struct embedding_data {
    uint64_t width;
    const int32_t *tokens;
    const float *tables, *out_gradient; /* tables: of tokens, then of positions */
    bool positions, adds;
};

static void run_embedding_forward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct embedding_data *d = arg;
    cr_assert_eq(ops->embedding_forward(team, &(struct eo_embedding){
        .types = FP32, .out = out, .tokens = d->tokens, .token_table = d->tables,
        .position_table = d->positions ? d->tables + VOCABULARY * d->width : NULL, .rows = ROWS, .width = d->width,
        .seq = SEQ}), EO_OK);
}

/* out: both gradients, with old content to be overwritten, but for positions that are not wanted. */
static void run_embedding_backward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct embedding_data *d = arg;
    memcpy(out, d->tables, (VOCABULARY + POSITIONS) * d->width * sizeof(float));
    cr_assert_eq(
        ops->embedding_backward(
            team, &(struct eo_embedding_gradient){.types = FP32,
                                                  .token_gradient = out,
                                                  .position_gradient = d->positions ? out + VOCABULARY * d->width : NULL,
                                                  .out_gradient = d->out_gradient,
                                                  .tokens = d->tokens,
                                                  .rows = ROWS,
                                                  .width = d->width,
                                                  .vocabulary = VOCABULARY,
                                                  .positions = POSITIONS,
                                                  .seq = SEQ,
                                                  .adds = d->adds}),
        EO_OK);
}

Test(embedding, looks_up_and_its_gradient_sums_tokens_that_repeat)
{
    static const uint64_t widths[] = {1, 3, 16, 17, 31, 33, 257};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++, guards_free()) {
        const uint64_t width = widths[i];
        const uint64_t table = (VOCABULARY + POSITIONS) * width;
        struct embedding_data d = {.width = width,
                                   .tokens = guarded_tokens(ROWS, VOCABULARY),
                                   .tables = guarded_random(table, -1, 1),
                                   .out_gradient = guarded_random(ROWS * width, -1, 1)};
        for (int positions = 0; positions < 2; positions++) {
            d.positions = positions;
            const float *expected = reference_result(run_embedding_forward, &d, ROWS * width);
            every_level_and_team(run_embedding_forward, &d, ROWS * width, expected, 0, 0, "embedding");
            expected = reference_result(run_embedding_backward, &d, table);
            every_level_and_team(run_embedding_backward, &d, table, expected, 1e-6, 1e-6, "embedding backward");
            d.adds = true;
            const float *added = reference_result(run_embedding_backward, &d, table);
            every_level_and_team(run_embedding_backward, &d, table, added, 1e-6, 1e-6, "embedding backward, added");
            for (uint64_t k = 0; k < VOCABULARY * width; k++)
                cr_assert_float_eq(added[k], expected[k] + d.tables[k], 1e-5, "element %d of the sum", (int)k);
            d.adds = false;
        }
    }
}

/* ---- loss ---- */

struct loss_data {
    uint64_t rows, vocabulary, stride;
    const float *logits;
    const int32_t *targets;
    bool backward;
};

/* The sum of the losses. */
static double losses_of(const struct eo_kernel_ops *ops, eo_team *team, const struct loss_data *d, float *losses,
                        float *logits)
{
    double total = 0;
    cr_assert_eq(ops->cross_entropy(team, &(struct eo_loss){
        .types = FP32, .logits = logits, .losses = losses, .loss_sum = &total, .targets = d->targets, .stride = d->stride,
        .rows = d->rows, .vocabulary = d->vocabulary, .scale = 0.25F, .backward = d->backward}), EO_OK);
    return total;
}

/* out: losses, then the logits (or their gradient) with what lies between the rows. */
static void run_loss(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct loss_data *d = arg;
    float *logits = out + d->rows;
    memcpy(logits, d->logits, ((d->rows - 1) * d->stride + d->vocabulary) * sizeof(float));
    const double total = losses_of(ops, team, d, out, logits);
    double sum = 0;
    for (uint64_t row = 0; row < d->rows; row++)
        sum += out[row];
    cr_assert_eq(total, sum, "the sum of the losses is not in row order");
}

static void check_loss(struct loss_data *d, double absolute)
{
    const uint64_t count = d->rows + (d->rows - 1) * d->stride + d->vocabulary;
    for (int backward = 0; backward < 2; backward++) {
        d->backward = backward;
        const float *expected = reference_result(run_loss, d, count);
        every_level_and_team(run_loss, d, count, expected, 2e-6, absolute, "cross-entropy");
    }
    d->backward = false;
}

Test(loss, matches_and_writes_the_gradient_over_the_logits)
{
    static const uint64_t vocabularies[] = {1, 2, 3, 17, 31, 33, 63, 64, 65, 257, 5003};
    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++, guards_free()) {
        const uint64_t vocabulary = vocabularies[i];
        struct loss_data d = {.rows = 19,
                              .vocabulary = vocabulary,
                              .stride = vocabulary + i % 3,
                              .logits = guarded_random(19 * (vocabulary + 2), -12, 12),
                              .targets = guarded_tokens(19, (uint32_t)vocabulary)};
        check_loss(&d, 2e-6);
        ((int32_t *)(uintptr_t)d.targets)[i % 19] = -100;
        check_loss(&d, 2e-6);
    }
}

/* All equal: the loss is log(vocabulary). Far apart: no overflow, the loss is the distance. Denormals: as zeros. */
Test(loss, holds_for_equal_extreme_and_denormal_logits)
{
    enum { COUNT = 100 };
    float *logits = guarded(4 * COUNT);
    int32_t *targets = guarded_tokens(4, COUNT);
    for (int i = 0; i < COUNT; i++) {
        logits[i] = 7.0f;
        logits[COUNT + i] = i == targets[1] ? -3e4f : 3e4f;
        logits[2 * COUNT + i] = i == targets[2] ? 1e30f : -1e30f;
        logits[3 * COUNT + i] = 1e-41f * (float)i;
    }
    struct loss_data d = {.rows = 4, .vocabulary = COUNT, .stride = COUNT, .logits = logits, .targets = targets};
    check_loss(&d, 1e-6);
    float losses[4];
    losses_of(&eo_kernels_cpu_ops, NULL, &d, losses, logits);
    cr_assert_float_eq(losses[0], log(COUNT), 1e-5);
    cr_assert_float_eq(losses[1], 6e4 + log(COUNT - 1), 1e-2);
    cr_assert_float_eq(losses[2], 0, 1e-6);
    guards_free();
}

/* Rows without a target that counts: zeros, whatever their logits are; the others as they were. */
Test(loss, targets_below_zero_are_ignored)
{
    enum { COUNT = 77, ROWS_HERE = 5 };
    for (int backward = 0; backward < 2; backward++) {
        float *logits = guarded_random(ROWS_HERE * COUNT, -9, 9), losses[2][ROWS_HERE];
        logits[3 * COUNT + 5] = NAN;
        int32_t targets[2][ROWS_HERE] = {{7, 0, 76, 3, 11}, {7, -100, 76, -1, INT32_MIN}};
        struct loss_data d = {.rows = ROWS_HERE, .vocabulary = COUNT, .stride = COUNT, .logits = logits, .backward = backward};
        float *all = guarded_copy(logits, ROWS_HERE * COUNT), *some = guarded_copy(logits, ROWS_HERE * COUNT);
        d.targets = targets[0];
        losses_of(&eo_kernels_reference_ops, NULL, &d, losses[0], all);
        d.targets = targets[1];
        const double total = losses_of(&eo_kernels_cpu_ops, NULL, &d, losses[1], some);
        cr_assert_float_eq(total, (double)losses[0][0] + (double)losses[0][2], 1e-5);
        for (int row = 0; row < ROWS_HERE; row++) {
            cr_assert_float_eq(losses[1][row], row == 0 || row == 2 ? losses[0][row] : 0, 1e-5);
            for (int i = 0; i < COUNT; i++) {
                const float expected = targets[1][row] >= 0 ? all[row * COUNT + i] : backward ? 0 : logits[row * COUNT + i];
                const float got = some[row * COUNT + i];
                cr_assert(isnan(expected) ? isnan(got) : fabsf(got - expected) <= 1e-6F, "row %d, word %d", row, i);
            }
        }
        guards_free();
    }
}

/* What is not a number must show in the loss at its own row, and nowhere else, at every level. */
Test(loss, values_that_are_not_finite_show_in_their_row)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    static const int places[] = {0, 5, 64, 98, 99};
    for (size_t level = 0; level < 3; level++) {
        if (eo_kernels_select(names[level]) < 0)
            continue;
        for (size_t place = 0; place < sizeof(places) / sizeof(places[0]); place++)
            for (int kind = 0; kind < 3; kind++) {
                float logits[300];
                float losses[3];
                const int32_t targets[3] = {1, 2, 3};
                for (int i = 0; i < 300; i++)
                    logits[i] = (float)(i % 7);
                logits[100 + places[place]] = kind == 0 ? NAN : INFINITY;
                if (kind == 2) /* a NaN of all ones, as poison may be */
                    memset(&logits[100 + places[place]], 0xff, sizeof(float));
                const struct loss_data d = {.rows = 3, .vocabulary = 100, .stride = 100, .targets = targets};
                const double total = losses_of(&eo_kernels_cpu_ops, NULL, &d, losses, logits);
                cr_assert(isfinite(losses[0]) && !isfinite(losses[1]) && isfinite(losses[2]));
                cr_assert(!isfinite(total));
            }
    }
}
