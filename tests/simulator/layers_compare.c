/* SPDX-License-Identifier: MIT */
#include "layers_compare.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cublaslt/cublaslt.h"
#include "tests/simulator/cuda/sim.h"
#include "tests/tap/tap.h"

/*
 * The norm of the gradients is a sum of double over layers, each by its shards. Halves of blocks are layers of their own: the
 * same squares in another order. A square takes part in `additions` at most (streams/sum_order.h), each of which may be off by
 * 2^-53 of a sum of positive numbers; the root halves that, and there are two norms. 0: the same bits.
 */
enum { ADDITIONS = 8704 / 32 + 5 /* a shard's lanes, folded */ + 8 /* layers */ + TRANSFORMER_RANKS_MAX };

static bool same_numbers(const struct transformer_result *a, const struct transformer_result *b, uint32_t additions)
{
    for (int step = 0; step < TRANSFORMER_STEPS; step++)
        if (!(fabs(a->norms[step] - b->norms[step]) <= additions * 0x1p-53 * b->norms[step]))
            return false;
    return memcmp(a->losses, b->losses, sizeof(a->losses)) == 0 && a->weights == b->weights;
}

bool same_bits(const struct transformer_result *a, const struct transformer_result *b)
{
    return same_numbers(a, b, 0);
}

const char *lacks;
int architecture;

struct transformer_result run_simulated(const struct transformer_settings *settings, uint64_t seed)
{
    struct transformer_result result;
    struct transformer_settings on_device = *settings;
    on_device.debug = seed % 2; /* what is dead is poisoned, and the numbers are the same */
    on_device.device = "cuda";
    const int constant = sim_cublaslt_counts().constant;
    sim_start(&(struct sim_config){.seed = seed, .device_bytes = 512u << 20, .lacks = lacks,
                                  .architecture = architecture});
    transformer_train(&on_device, &result);
    const uint32_t violations = sim_finish();
    const struct sim_cublaslt_counts counts = sim_cublaslt_counts();
    CHECK(result.status == EO_OK, "seed %llu: %s", (unsigned long long)seed, result.error);
    CHECK(violations == 0, "seed %llu: %s", (unsigned long long)seed, sim_violation(0));
    CHECK(counts.refused == 0, "cuBLASLt would refuse: %s", counts.first_refusal);
    CHECK(counts.handles == 0, "%d handles are left", counts.handles);
    CHECK(counts.constant == constant || settings->lora.rank, /* an adapter's B begins as zeros */
          "%d products of constants were run", counts.constant - constant);
    return result;
}

struct transformer_result run_reference(const struct transformer_settings *settings)
{
    struct transformer_result result;
    struct transformer_settings on_host = *settings;
    on_host.device = "cpu";
    on_host.graph = false;
    transformer_train(&on_host, &result);
    CHECK(result.status == EO_OK, "on the CPU: %s", result.error);
    return result;
}

/*
 * How far the device may be from the reference, which adds up in another order.
 *
 * fp32: as far as rounding takes the reference itself, which its runs in the directed modes tell, with room for chance; why
 * that is a bound stands in tests/random/transformers.c, "rounding". It has to be asked of each case: AdamW's first steps go by
 * the sign of a gradient, and those near zero have any. Where few are, a logit moves by 1e-7, else by 1e-4. Seen at most: 0.6
 * of the furthest such run.
 *
 * bf16 knows no modes. Two to ten times what was seen: u = 2^-8; both sides round at the same places, some 22 on the longest
 * path to a loss; they differ where a sum lies next to the middle of two numbers, by 2 u in one element among the 18 x 64
 * logits whose mean the loss is. Seen at most: 4e-5, and after updates 9e-4 and 0.042.
 */
enum { DIRECTED = 3, ROOM = 4 };

static struct transformer_result closeness_in_fp32(const struct transformer_settings *s, const struct transformer_result *host)
{
    static const int directed[DIRECTED] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    struct transformer_result c = {.status = EO_OK};
    for (int way = 0; way < DIRECTED; way++) {
        fesetround(directed[way]); /* threads begin in the mode of who makes them */
        const struct transformer_result other = run_reference(s);
        fesetround(FE_TONEAREST);
        for (int step = 0; step < TRANSFORMER_STEPS; step++) {
            c.losses[step] = fmax(c.losses[step], ROOM * fabs(other.losses[step] - host->losses[step]));
            c.norms[step] = fmax(c.norms[step], ROOM * fabs(other.norms[step] - host->norms[step]));
        }
        c.evaluation = fmax(c.evaluation, ROOM * fabs(other.evaluation - host->evaluation));
        c.first_logit = fmaxf(c.first_logit, ROOM * fabsf(other.first_logit - host->first_logit));
    }
    return c;
}

static struct transformer_result closeness_in_bf16(const struct transformer_result *host)
{
    struct transformer_result c = {.evaluation = 2e-2, .first_logit = 6e-2F};
    for (int step = 0; step < TRANSFORMER_STEPS; step++) {
        c.losses[step] = (step ? 5e-3 : 4e-4) * host->losses[step];
        c.norms[step] = (step ? 0.2 : 3e-3) * host->norms[step];
    }
    return c;
}

bool is_close(const struct transformer_result *device, const struct transformer_result *host,
              const struct transformer_settings *s)
{
    const struct transformer_result c = s->dtype == EO_DTYPE_FP32 ? closeness_in_fp32(s, host) : closeness_in_bf16(host);
    for (int step = 0; step < TRANSFORMER_STEPS && host->losses[step] != 0; step++)
        if (!(fabs(device->losses[step] - host->losses[step]) <= c.losses[step]) ||
            !(fabs(device->norms[step] - host->norms[step]) <= c.norms[step]))
            return false;
    return fabs(device->evaluation - host->evaluation) <= c.evaluation &&
           fabsf(device->first_logit - host->first_logit) <= c.first_logit;
}

void check_close(const struct transformer_settings *s, const struct transformer_result *device)
{
    const struct transformer_result host = run_reference(s);
    CHECK(is_close(device, &host, s), "losses %g ... %g, norms %g ... %g, then %g, %g; on the CPU %g ... %g, %g ... %g, %g, %g",
          device->losses[0], device->losses[LAST], device->norms[0], device->norms[LAST], device->evaluation,
          (double)device->first_logit, host.losses[0], host.losses[LAST], host.norms[0], host.norms[LAST], host.evaluation,
          (double)host.first_logit);
}

/* The same numbers step by step, in static memory, with all activations kept, and blocks that are one layer. */
static const struct transformer_result *run_plainly(const struct transformer_settings *settings)
{
    static struct {
        struct transformer_settings settings;
        struct transformer_result result;
    } runs[96];
    static uint32_t count;
    struct transformer_settings plain;
    memcpy(&plain, settings, sizeof(plain)); /* the padding, too */
    plain.graph = false;
    plain.memory = EO_MEMORY_STATIC;
    plain.evaluates = true;
    plain.recompute = EO_RECOMPUTE_NONE;
    plain.half_blocks = false;
    plain.unit_blocks = 0;
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&runs[i].settings, &plain, sizeof(plain)) == 0)
            return &runs[i].result;
    if (count == sizeof(runs) / sizeof(runs[0]))
        abort();
    memcpy(&runs[count].settings, &plain, sizeof(plain));
    runs[count].result = run_simulated(&plain, 100 + count);
    return &runs[count++].result;
}

void compare(const struct transformer_settings *settings, uint64_t seed)
{
    const struct transformer_result device = run_simulated(settings, seed), *plain = run_plainly(settings);
    CHECK(same_numbers(&device, plain, settings->half_blocks || settings->unit_blocks ? ADDITIONS : 0) &&
              (!settings->evaluates || (device.evaluation == plain->evaluation && device.first_logit == plain->first_logit)),
          "family %d, dtype %d/%d, ranks %u, recompute %d, halves %d, seed %llu: loss %.17g, norm %.17g; in the plain run "
          "%.17g, %.17g",
          settings->family, settings->dtype, settings->reduce_dtype, settings->ranks, settings->recompute,
          settings->half_blocks, (unsigned long long)seed, device.losses[LAST],
          device.norms[LAST], plain->losses[LAST], plain->norms[LAST]);
    check_close(settings, &device);
    if (settings->recompute != EO_RECOMPUTE_NONE) {
        struct transformer_settings kept = *settings;
        kept.recompute = EO_RECOMPUTE_NONE;
        const struct transformer_result again = run_reference(settings), once = run_reference(&kept);
        CHECK(same_bits(&again, &once), "on the CPU recompute %d gives other bits", settings->recompute);
    }
    CHECK(settings->steps < TRANSFORMER_STEPS || device.losses[TRANSFORMER_STEPS - 1] < device.losses[0],
          "nothing was learned: %g, then %g", device.losses[0], device.losses[TRANSFORMER_STEPS - 1]);
}

struct transformer_settings settings_of(uint32_t which)
{
    return (struct transformer_settings){
        .family = which & 1 ? EO_FAMILY_LLAMA : EO_FAMILY_GPT2,
        .dtype = which & 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32,
        .ranks = 1 + (which >> 2 & 1),
        .micro_batches = 1 + (which >> 1 & 1),
    };
}
