/* SPDX-License-Identifier: MIT
 *
 * GPT-2's initialisation from a counter: value i of parameter p is a function of (seed, p, i) alone, so that every
 * rank can fill its own shard and the values do not depend on how many ranks there are.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/random.h>

#include "base/processors.h"
#include "base/thread.h"
#include "layers/transformer/internal.h"

struct produce_normal {
    uint64_t key;
    float deviation;
    uint64_t element_count;
    /* Where the values go to a GPU they are asked for in small pieces, one after the other: made ahead of that, many at a
     * time. NULL: there was no memory for it. */
    float *ahead;
    uint64_t ahead_begin, ahead_count, next; /* next: where the last piece ended */
};

/* The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Two normal values from one counter (Box and Muller, "A Note on the Generation of Random Normal Deviates"). */
static void normal_pair(uint64_t key, uint64_t counter, float pair[2])
{
    const uint64_t bits = mix(mix(counter ^ key) + key);
    const float u = ((float)(bits >> 40) + 1.0F) * 0x1p-24F; /* above 0: its logarithm is finite */
    const float angle = (float)((bits >> 8) & 0xffffff) * (0x1p-24F * 6.2831853071795864769F);
    const float radius = sqrtf(-2.0F * logf(u));
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    pair[0] = radius * cosine;
    pair[1] = radius * sine;
}

static void fill_normal_part(const struct produce_normal *normal, uint64_t offset, uint64_t count, float *values)
{
    float pair[2];
    uint64_t i = 0;
    if (count && offset % 2) { /* a shard may begin in the middle of a pair */
        normal_pair(normal->key, offset / 2, pair);
        values[i++] = normal->deviation * pair[1];
    }
    for (; i < count; i += 2) {
        normal_pair(normal->key, (offset + i) / 2, pair);
        values[i] = normal->deviation * pair[0];
        if (i + 1 < count)
            values[i + 1] = normal->deviation * pair[1];
    }
}

/* -- on all processors that the calling thread may use: the values do not depend on who makes them ------------------ */

enum { PARTS_MAX = 64, PART_LEAST = 1 << 16, AHEAD = 1 << 20 }; /* a shorter part takes no longer than to start a thread */

struct normal_part {
    const struct produce_normal *normal;
    uint64_t offset, count;
    float *values;
    pthread_t thread;
    bool has_thread;
};

static void *run_part(void *argument)
{
    const struct normal_part *part = argument;
    fill_normal_part(part->normal, part->offset, part->count, part->values);
    return NULL;
}

static uint64_t part_count(uint64_t count)
{
    if (count < 2 * PART_LEAST)
        return 1;
    const uint64_t processors = eo_processors_allowed().count, parts = count / PART_LEAST;
    const uint64_t most = processors < PARTS_MAX ? processors : PARTS_MAX;
    return most == 0 ? 1 : parts < most ? parts : most;
}

static void fill_normal_parallel(const struct produce_normal *normal, uint64_t offset, uint64_t count, float *values)
{
    struct normal_part parts[PARTS_MAX];
    const uint64_t wanted = part_count(count), share = count / wanted;
    for (uint64_t p = 0; p < wanted; p++) {
        const uint64_t begin = p * share, end = p + 1 == wanted ? count : begin + share;
        parts[p] = (struct normal_part){normal, .offset = offset + begin, .count = end - begin, .values = values + begin};
        parts[p].has_thread = p + 1 < wanted && eo_thread_start(&parts[p].thread, run_part, &parts[p]) == 0;
        if (!parts[p].has_thread)
            run_part(&parts[p]);
    }
    for (uint64_t p = 0; p < wanted; p++)
        if (parts[p].has_thread)
            pthread_join(parts[p].thread, NULL);
}

static eo_status fill_normal(void *user, uint64_t offset, uint64_t count, float *values)
{
    struct produce_normal *normal = user;
    const bool goes_on = offset > 0 && offset == normal->next; /* who asks once, for all of its own, never does */
    const uint64_t left = normal->element_count - offset;
    normal->next = offset + count;
    if (!normal->ahead || !goes_on || count > AHEAD) {
        fill_normal_parallel(normal, offset, count, values);
        return EO_OK;
    }
    if (offset + count > normal->ahead_begin + normal->ahead_count) {
        normal->ahead_begin = offset;
        normal->ahead_count = left < AHEAD ? left : AHEAD;
        fill_normal_parallel(normal, offset, normal->ahead_count, normal->ahead);
    }
    memcpy(values, normal->ahead + (offset - normal->ahead_begin), count * sizeof(*values));
    return EO_OK;
}

static eo_status fill_constant(void *user, uint64_t offset, uint64_t count, float *values)
{
    const float *constant = user;
    (void)offset;
    for (uint64_t i = 0; i < count; i++)
        values[i] = *constant;
    return EO_OK;
}

/* Within 1 / sqrt(in), as PyTorch's linear layers begin; `position` of the place is the parameter. */
struct produce_uniform {
    eo_random_place place;
    float bound;
};

static eo_status fill_uniform(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct produce_uniform *uniform = user;
    uint32_t words[4];
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t element = offset + i;
        if (i == 0 || element % 4 == 0)
            eo_random_words(&uniform->place, (uint32_t)(element / 4), words);
        values[i] = uniform->bound * (2 * eo_random_unit(words[element % 4]) - 1);
    }
    return EO_OK;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t name_length = strlen(name), end_length = strlen(end);
    return name_length >= end_length && strcmp(name + name_length - end_length, end) == 0;
}

/* What is added to the residual stream starts smaller, so that its variance does not grow with depth. */
static bool is_residual_projection(const char *name)
{
    return ends_with(name, ".c_proj.weight") || ends_with(name, ".o_proj.weight") ||
           ends_with(name, ".down_proj.weight");
}

static eo_status fill_adapter(eo_runtime *runtime, uint32_t parameter, const eo_parameter_info *info, uint64_t seed)
{
    float zero = 0;
    if (ends_with(info->name, ".lora_B.weight"))
        return eo_weights_fill(runtime, parameter, fill_constant, &zero);
    struct produce_uniform uniform = {.place = {.seed = seed, .step = UINT32_MAX, .position = parameter},
                                      .bound = 1 / sqrtf((float)info->dims[1])};
    return eo_weights_fill(runtime, parameter, fill_uniform, &uniform);
}

eo_status eo_transformer_initialise_adapters(const eo_transformer *transformer, eo_runtime *runtime, uint64_t seed)
{
    if (!transformer || !runtime)
        return EO_ERR_INVALID;
    for (uint32_t k = 0; k < eo_model_parameter_count(transformer->model); k++) {
        eo_parameter_info info;
        EO_TRY(eo_model_parameter(transformer->model, k, &info));
        if (eo_transformer_is_adapter(transformer, k))
            EO_TRY(fill_adapter(runtime, k, &info, seed));
    }
    return EO_OK;
}

static eo_status fill_parameters(const eo_transformer *transformer, eo_runtime *runtime, uint64_t seed, float *ahead)
{
    if (!transformer || !runtime)
        return EO_ERR_INVALID;
    const float given = transformer->params.config.initial_deviation;
    const double deviation = given == 0.02F ? 0.02 : (double)given; /* the double: other bits after the division below */
    const double layers = transformer->params.config.layer_count;
    const uint32_t parameter_count = eo_model_parameter_count(transformer->model);
    for (uint32_t k = 0; k < parameter_count; k++) {
        eo_parameter_info info;
        EO_TRY(eo_model_parameter(transformer->model, k, &info));
        if (eo_transformer_is_adapter(transformer, k)) {
            EO_TRY(fill_adapter(runtime, k, &info, seed));
        } else if (info.dim_count > 1) {
            struct produce_normal normal = {
                .key = mix(mix(seed) + k),
                .deviation = (float)(is_residual_projection(info.name) ? deviation / sqrt(2 * layers) : deviation),
                .element_count = info.element_count,
                .ahead = ahead,
            };
            EO_TRY(eo_weights_fill(runtime, k, fill_normal, &normal));
        } else {
            float constant = ends_with(info.name, ".bias") ? 0.0F : 1.0F;
            EO_TRY(eo_weights_fill(runtime, k, fill_constant, &constant));
        }
    }
    return EO_OK;
}

eo_status eo_transformer_initialise(const eo_transformer *transformer, eo_runtime *runtime, uint64_t seed)
{
    float *ahead = malloc(AHEAD * sizeof(*ahead));
    const eo_status status = fill_parameters(transformer, runtime, seed, ahead);
    free(ahead);
    return status;
}
