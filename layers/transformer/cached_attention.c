/* SPDX-License-Identifier: MIT */
#include "layers/transformer/cached_attention.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

struct decode_job {
    const struct pass *pass;
    const struct eo_attention *attention;
    const void *keys, *values;
};

static float dot(eo_dtype dtype, const float *a, const void *b, uint64_t at, uint32_t count)
{
    float lane[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + (uint32_t)l] * eo_element_load(dtype, b, at + i + (uint32_t)l);
    for (; i < count; i++)
        sum += a[i] * eo_element_load(dtype, b, at + i);
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* One query of one head, over the keys before it and its own. */
static void attend(const struct decode_job *job, uint32_t head, uint64_t row, float *scores)
{
    enum { PIECE = 64 };
    const struct eo_attention *a = job->attention;
    const eo_dtype dtype = a->types.compute;
    const uint32_t size = a->shape.head_size, kv_width = a->shape.kv_head_count * size;
    const uint32_t kv_at = head / (a->shape.head_count / a->shape.kv_head_count) * size;
    const uint64_t keys = job->pass->decoder->count + row + 1;
    const float scale = 1.0F / sqrtf((float)size);
    float largest = -INFINITY, sum = 0;
    for (uint64_t k = 0; k < keys; k++)
        scores[k] = 0;
    for (uint32_t from = 0; from < size; from += PIECE) {
        const uint32_t count = size - from < PIECE ? size - from : PIECE;
        float query[PIECE];
        eo_elements_load(dtype, query, a->q, row * a->shape.q_stride + (uint64_t)head * size + from, count);
        for (uint64_t k = 0; k < keys; k++)
            scores[k] += dot(dtype, query, job->keys, k * kv_width + kv_at + from, count);
    }
    for (uint64_t k = 0; k < keys; k++) {
        scores[k] *= scale;
        largest = scores[k] > largest ? scores[k] : largest;
    }
    for (uint64_t k = 0; k < keys; k++)
        sum += scores[k] = expf(scores[k] - largest);
    for (uint32_t from = 0; from < size; from += PIECE) {
        const uint32_t count = size - from < PIECE ? size - from : PIECE;
        float out[PIECE] = {0}, value[PIECE];
        for (uint64_t k = 0; k < keys; k++) {
            eo_elements_load(dtype, value, job->values, k * kv_width + kv_at + from, count);
            for (uint32_t i = 0; i < count; i++)
                out[i] += scores[k] * value[i];
        }
        for (uint32_t i = 0; i < count; i++)
            out[i] /= sum;
        eo_elements_store(dtype, a->out, row * a->shape.out_stride + (uint64_t)head * size + from, out, count);
    }
}

static void attention_task(void *arg, uint32_t head)
{
    const struct decode_job *job = arg;
    float *scores = job->pass->decoder->scores + (uint64_t)head * job->pass->transformer->params.seq;
    for (uint64_t row = 0; row < job->pass->rows; row++)
        attend(job, head, row, scores);
}

eo_status eo_decode_attention(const struct pass *pass, uint32_t block, const struct eo_attention *attention)
{
    const struct eo_decoder *d = pass->decoder;
    const eo_dtype dtype = pass->types.compute;
    const uint64_t kv_width = kv_heads_width(pass->transformer);
    struct decode_job job = {.pass = pass, .attention = attention, .keys = d->keys[block], .values = d->values[block]};
    for (uint64_t row = 0; row < pass->rows; row++) {
        const uint64_t to = (d->count + row) * kv_width, from = row * attention->shape.kv_stride;
        memcpy(eo_element_at_mutable(dtype, d->keys[block], to), eo_element_at(dtype, attention->k, from),
               kv_width * eo_dtype_bytes(dtype));
        memcpy(eo_element_at_mutable(dtype, d->values[block], to), eo_element_at(dtype, attention->v, from),
               kv_width * eo_dtype_bytes(dtype));
    }
    eo_team_run(pass->team, attention->shape.head_count, attention_task, &job);
    return EO_OK;
}
