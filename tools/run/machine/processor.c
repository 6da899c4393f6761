/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/processor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A set is left for a lower one only if the slowest run of that one is so much faster than the best of its own: noise must not
 * decide, for the lower one's bits are others. */
static const double clearly_faster = 1.25;

enum { OFFERS_MAX = 6, NAME_BYTES = 16, ROUNDS = 5 };

/* What a rank has, best first. */
struct offer {
    char name[NAME_BYTES];
    double best, worst; /* FLOP/s of a product in bf16 on one thread; 0: nothing to choose from */
};
struct offers {
    struct offer of[OFFERS_MAX];
};

/* ---- of this process ---- */

static uint32_t place_of(const char *set)
{
    static const char *const best_first[] = {"amx", "avx512_bf16", "avx512", "avx2", "plain"};
    uint32_t place = 0;
    while (place + 1 < sizeof(best_first) / sizeof(best_first[0]) && strcmp(best_first[place], set) != 0)
        place++;
    return place;
}

/* By oneDNN's variable, in its older or newer spelling: {its value, the best set allowed}. */
static bool is_allowed(const char *set)
{
    static const char *const bounds[][2] = {
        {"SSE41", "plain"},
        {"AVX", "plain"},
        {"AVX2", "avx2"},
        {"AVX2_VNNI", "avx2"},
        {"AVX2_VNNI_2", "avx2"},
        {"AVX512_CORE", "avx512"},
        {"AVX512_CORE_VNNI", "avx512"},
        {"AVX512_CORE_BF16", "avx512_bf16"},
        {"AVX512_CORE_FP16", "avx512_bf16"},
        {"AVX10_1_512", "avx512_bf16"},
    };
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    if (!isa)
        isa = getenv("DNNL_MAX_CPU_ISA");
    for (size_t i = 0; isa && i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (strcasecmp(isa, bounds[i][0]) == 0)
            return place_of(set) >= place_of(bounds[i][1]);
    return true;
}

static double speed_of(const char *name)
{
    static const eo_product product = {.dtype = EO_DTYPE_BF16, .m = 128, .n = 512, .k = 512, .transpose_b = true};
    double speed = 0;
    return eo_kernels_select(name) >= 0 && eo_product_measure(NULL, &product, &speed) >= 0 ? speed : 0;
}

/* In turn, so that what disturbs one disturbs all. */
static void measure(struct offers *own, uint32_t count)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < count; i++) {
            struct offer *offer = &own->of[i];
            const double speed = speed_of(offer->name);
            offer->best = speed > offer->best ? speed : offer->best;
            offer->worst = round == 0 || speed < offer->worst ? speed : offer->worst;
        }
    }
}

static struct offers own_offers(const struct tool_options *options)
{
    struct offers own = {0};
    const char *name;
    uint32_t count = 0;
    if (options->instruction_set) {
        snprintf(own.of[0].name, NAME_BYTES, "%s", options->instruction_set);
        return own;
    }
    for (uint32_t i = 0; (name = eo_kernels_at(i)) != NULL && count < OFFERS_MAX; i++)
        if (is_allowed(name) && strcmp(name, "reference") != 0)
            snprintf(own.of[count++].name, NAME_BYTES, "%s", name);
    if (count > 1 && options->plan.dtype == EO_DTYPE_BF16 && !options->plan_only)
        measure(&own, count);
    return own;
}

/* ---- of all ---- */

static const struct offer *find(const struct offers *offers, const char *name)
{
    for (uint32_t i = 0; i < OFFERS_MAX && offers->of[i].name[0]; i++)
        if (strcmp(offers->of[i].name, name) == 0)
            return &offers->of[i];
    return NULL;
}

/* What every rank has, each as fast as on its slowest rank. `lacking`: a rank without the best set of all. */
static struct offers common_offers(const struct offers *all, uint32_t rank_count, uint32_t *lacking, const char **best)
{
    struct offers common = {0};
    uint32_t count = 0, with_best = 0;
    for (uint32_t r = 1; r < rank_count; r++) /* the sets of ranks are the ends of one list: the longest has the best */
        with_best = find(&all[r], all[with_best].of[0].name) && !find(&all[with_best], all[r].of[0].name) ? r : with_best;
    *best = all[with_best].of[0].name;
    *lacking = rank_count;
    for (uint32_t i = 0; i < OFFERS_MAX && all[with_best].of[i].name[0]; i++) {
        struct offer offer = all[with_best].of[i];
        bool has = true;
        for (uint32_t r = 0; r < rank_count; r++) {
            const struct offer *other = find(&all[r], offer.name);
            has = has && other;
            if (!other && i == 0 && *lacking == rank_count)
                *lacking = r;
            if (other && other->best < offer.best)
                offer.best = other->best;
            if (other && other->worst < offer.worst)
                offer.worst = other->worst;
        }
        if (has)
            common.of[count++] = offer;
    }
    return common;
}

static const struct offer *choose(const struct offers *common)
{
    const struct offer *chosen = &common->of[0];
    for (uint32_t i = 1; i < OFFERS_MAX && common->of[i].name[0]; i++)
        if (common->of[i].worst > clearly_faster * chosen->best)
            chosen = &common->of[i];
    return chosen;
}

/* Of a run in bf16. */
static void tell(const struct offers *common, const struct offer *chosen)
{
    const char *separator = " (";
    const bool has_bf16 = strcmp(chosen->name, "amx") == 0 || strcmp(chosen->name, "avx512_bf16") == 0;
    printf("instruction set: %s", chosen->name);
    if (chosen->best > 0)
        printf(", %.0f GFLOP/s in bf16 on one core", chosen->best * 1e-9);
    for (uint32_t i = 0; chosen->best > 0 && i < OFFERS_MAX && common->of[i].name[0]; i++) {
        if (&common->of[i] == chosen)
            continue;
        printf("%s%s %.0f", separator, common->of[i].name, common->of[i].best * 1e-9);
        separator = ", ";
    }
    printf("%s%s\n", separator[0] == ',' ? ")" : "",
           has_bf16 ? "" : "; without instructions for bf16: products widen it to fp32");
}

static eo_status gather(struct tool_job_world *world, const struct offers *own, struct offers *all, struct tool_problem *problem)
{
    all[0] = *own;
    if (!world)
        return EO_OK;
    const eo_status status = eo_rendezvous_all_gather(world->rendezvous, own, sizeof(*own), all);
    return status < 0 ? tool_problem_set(problem, status, "the ranks could not compare their processors: %s",
                                         eo_status_text(status))
                      : EO_OK;
}

static eo_status settle(struct tool_job_world *world, const struct offers *all, uint32_t rank_count,
                        const struct tool_options *options, bool tells, struct tool_problem *problem)
{
    uint32_t lacking;
    const char *best;
    const struct offers common = common_offers(all, rank_count, &lacking, &best);
    const bool is_elsewhere = lacking < rank_count && world;
    const eo_rank_info where = is_elsewhere ? eo_rendezvous_rank_info(world->rendezvous, lacking) : (eo_rank_info){0};
    if (!common.of[0].name[0])
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "the ranks have no instruction set in common: rank %u (host %s) does not have %s; give all "
                                "ranks the same --instruction-set",
                                lacking, where.host, best);
    const struct offer *chosen = choose(&common);
    if (tells && lacking < rank_count && !options->plan_only)
        printf("instruction set: %s on all ranks, because rank %u (host %s) has no %s\n", common.of[0].name, lacking,
               where.host, best);
    if (tells && options->plan.dtype == EO_DTYPE_BF16 && !options->plan_only)
        tell(&common, chosen);
    const eo_status status = eo_kernels_select(chosen->name);
    return status < 0 ? tool_problem_set(problem, status, "instruction set %s: %s", chosen->name, eo_status_text(status)) : EO_OK;
}

eo_status tool_processor_choose(struct tool_job_world *world, const struct tool_options *options, bool tells,
                                struct tool_problem *problem)
{
    const uint32_t rank_count = world ? world->environment.rank_count : 1;
    const struct offers own = tool_options_on_gpu(options) ? (struct offers){0} : own_offers(options);
    struct offers *all = calloc(rank_count, sizeof(*all));
    if (!all)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "no memory to compare the processors of %u ranks", rank_count);
    eo_status status = gather(world, &own, all, problem);
    bool all_offer = true; /* else they were started differently, which is told later by name */
    for (uint32_t r = 0; status >= 0 && r < rank_count; r++)
        all_offer = all_offer && all[r].of[0].name[0];
    if (status >= 0 && all_offer)
        status = settle(world, all, rank_count, options, tells, problem);
    free(all);
    return status;
}
