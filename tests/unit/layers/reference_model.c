/* SPDX-License-Identifier: MIT */
#include "reference_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double *find(const struct reference_model *r, const char *format, uint32_t block)
{
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), format, block);
    uint32_t parameter;
    if (eo_model_find_parameter(r->model, name, &parameter) < 0) {
        fprintf(stderr, "reference model: no parameter %s\n", name);
        abort();
    }
    return r->parameters[parameter];
}

/* out[o] = sum over i of w[o][i] x[i] (+ bias[o]) */
static void linear(double *out, const double *x, const double *w, const double *bias, uint32_t out_width,
                   uint32_t in_width)
{
    for (uint32_t o = 0; o < out_width; o++) {
        out[o] = bias ? bias[o] : 0;
        for (uint32_t i = 0; i < in_width; i++)
            out[o] += w[(size_t)o * in_width + i] * x[i];
    }
}

static void layer_norm(double *out, const double *x, const double *w, const double *b, double eps, uint32_t width)
{
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < width; i++)
        mean += x[i] / width;
    for (uint32_t i = 0; i < width; i++)
        variance += (x[i] - mean) * (x[i] - mean) / width;
    for (uint32_t i = 0; i < width; i++)
        out[i] = (x[i] - mean) / sqrt(variance + eps) * w[i] + b[i];
}

static void rms_norm(double *out, const double *x, const double *w, double eps, uint32_t width)
{
    double square = 0;
    for (uint32_t i = 0; i < width; i++)
        square += x[i] * x[i] / width;
    for (uint32_t i = 0; i < width; i++)
        out[i] = x[i] / sqrt(square + eps) * w[i];
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* By how many positions a turn takes. */
static double rope_frequency(const eo_transformer_config *c, uint32_t pair)
{
    const eo_rope_scaling *s = &c->rope_scaling;
    const double frequency = 1 / pow(c->rope_theta, 2.0 * pair / c->head_size);
    const double turn = 2 * 3.14159265358979323846 / frequency;
    const double longest_kept = s->original_context / s->high_freq_factor, shortest = s->original_context / s->low_freq_factor;
    if (s->kind == EO_ROPE_PLAIN || (s->kind == EO_ROPE_LLAMA3 && turn <= longest_kept))
        return frequency;
    if (s->kind == EO_ROPE_LINEAR || turn >= shortest)
        return frequency / s->factor;
    const double smooth = (s->original_context / turn - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return frequency * smooth + frequency / s->factor * (1 - smooth);
}

static void rotate(const eo_transformer_config *c, double *x, uint32_t place, uint32_t heads)
{
    const uint32_t size = c->head_size;
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < size / 2; i++) {
            const double angle = place * rope_frequency(c, i);
            double *a = &x[h * size + i], *b = a + size / 2;
            const double turned = *a * cos(angle) - *b * sin(angle);
            *b = *b * cos(angle) + *a * sin(angle);
            *a = turned;
        }
    }
}

/* One head of one query against the keys of its sequence up to its own. */
static void attend(double *out, const double *q, const double *keys, const double *values, uint32_t kv_width,
                   uint32_t count, uint32_t size)
{
    double *p = calloc(count, sizeof(double)), largest = -INFINITY, sum = 0;
    for (uint32_t j = 0; j < count; j++) {
        for (uint32_t i = 0; i < size; i++)
            p[j] += q[i] * keys[(size_t)j * kv_width + i] / sqrt(size);
        largest = p[j] > largest ? p[j] : largest;
    }
    for (uint32_t j = 0; j < count; j++)
        sum += p[j] = exp(p[j] - largest);
    memset(out, 0, size * sizeof(double));
    for (uint32_t j = 0; j < count; j++)
        for (uint32_t i = 0; i < size; i++)
            out[i] += p[j] / sum * values[(size_t)j * kv_width + i];
    free(p);
}

/* What Qwen3 does to each head of q or k. */
static void head_norms(double *x, const double *w, double eps, uint32_t heads, uint32_t size)
{
    for (uint32_t h = 0; h < heads; h++)
        rms_norm(x + h * size, x + h * size, w, eps, size);
}

/* One of q, k and v of a token in Llama's names: its product, with what the model has of bias, norm and rotation. */
static void project(const struct reference_model *r, uint32_t block, char letter, double *out, const double *norm,
                    uint32_t heads, uint32_t place)
{
    const eo_transformer_config *c = &r->config;
    char weight[EO_NAME_MAX], bias[EO_NAME_MAX], head_norm[EO_NAME_MAX];
    snprintf(weight, sizeof(weight), "model.layers.%u.self_attn.%c_proj.weight", block, letter);
    snprintf(bias, sizeof(bias), "model.layers.%u.self_attn.%c_proj.bias", block, letter);
    snprintf(head_norm, sizeof(head_norm), "model.layers.%u.self_attn.%c_norm.weight", block, letter);
    linear(out, norm, find(r, weight, 0), c->qkv_bias ? find(r, bias, 0) : NULL, heads * c->head_size, c->width);
    if (letter == 'v')
        return;
    if (c->qk_norm)
        head_norms(out, find(r, head_norm, 0), c->norm_eps, heads, c->head_size);
    if (!c->unrotated_interval || block % c->unrotated_interval != c->unrotated_interval - 1)
        rotate(c, out, place, heads);
}

/* Of what a half adds to the stream at token t; `random` is of the sequence and the half. */
static void add_branch(const struct reference_model *r, const eo_random_place *random, double *x, const double *branch, uint32_t t)
{
    const uint32_t width = r->config.width;
    for (uint32_t i = 0; i < width; i++) {
        const uint32_t element = t * width + i;
        uint32_t words[4];
        eo_random_words(random, element / 4, words);
        const bool is_dropped = (double)words[element % 4] / 4294967296.0 < (double)r->dropout;
        x[(size_t)t * width + i] += is_dropped ? 0 : branch[i] / (1 - (double)r->dropout);
    }
}

static void attention(const struct reference_model *r, const eo_random_place *random, uint32_t block, double *x, uint32_t seq)
{
    const eo_transformer_config *c = &r->config;
    const uint32_t width = c->width, size = c->head_size;
    const uint32_t q_width = size * c->head_count, kv_width = size * c->kv_head_count;
    const bool gpt2 = c->family == EO_FAMILY_GPT2;
    double *norm = calloc(width, sizeof(double)), *qkv = calloc(3 * (size_t)width, sizeof(double));
    double *q = calloc((size_t)seq * q_width, sizeof(double)), *heads = calloc(q_width, sizeof(double));
    double *k = calloc((size_t)seq * kv_width, sizeof(double)), *v = calloc((size_t)seq * kv_width, sizeof(double));
    double *out = calloc(width, sizeof(double));
    for (uint32_t t = 0; t < seq; t++) {
        double *qt = q + (size_t)t * q_width, *kt = k + (size_t)t * kv_width, *vt = v + (size_t)t * kv_width;
        if (gpt2) {
            layer_norm(norm, x + (size_t)t * width, find(r, "h.%u.ln_1.weight", block),
                       find(r, "h.%u.ln_1.bias", block), c->norm_eps, width);
            linear(qkv, norm, find(r, "h.%u.attn.c_attn.weight", block), find(r, "h.%u.attn.c_attn.bias", block),
                   3 * width, width);
            memcpy(qt, qkv, width * sizeof(double));
            memcpy(kt, qkv + width, width * sizeof(double));
            memcpy(vt, qkv + 2 * (size_t)width, width * sizeof(double));
        } else {
            rms_norm(norm, x + (size_t)t * width, find(r, "model.layers.%u.input_layernorm.weight", block),
                     c->norm_eps, width);
            project(r, block, 'q', qt, norm, c->head_count, t);
            project(r, block, 'k', kt, norm, c->kv_head_count, t);
            project(r, block, 'v', vt, norm, c->kv_head_count, t);
        }
    }
    for (uint32_t t = 0; t < seq; t++) {
        for (uint32_t h = 0; h < c->head_count; h++) {
            const uint32_t kv = h / (c->head_count / c->kv_head_count) * size;
            attend(heads + h * size, q + (size_t)t * q_width + h * size, k + kv, v + kv, kv_width, t + 1, size);
        }
        if (gpt2)
            linear(out, heads, find(r, "h.%u.attn.c_proj.weight", block), find(r, "h.%u.attn.c_proj.bias", block),
                   width, width);
        else
            linear(out, heads, find(r, "model.layers.%u.self_attn.o_proj.weight", block), NULL, width, q_width);
        add_branch(r, random, x, out, t);
    }
    free(norm), free(qkv), free(q), free(k), free(v), free(out), free(heads);
}

static void mlp(const struct reference_model *r, const eo_random_place *random, uint32_t block, double *x, uint32_t seq)
{
    const eo_transformer_config *c = &r->config;
    const uint32_t width = c->width, wide = c->mlp_width;
    double *norm = calloc(width, sizeof(double)), *out = calloc(width, sizeof(double));
    double *a = calloc(wide, sizeof(double)), *b = calloc(wide, sizeof(double));
    for (uint32_t t = 0; t < seq; t++) {
        double *xt = x + (size_t)t * width;
        if (c->family == EO_FAMILY_GPT2) {
            layer_norm(norm, xt, find(r, "h.%u.ln_2.weight", block), find(r, "h.%u.ln_2.bias", block), c->norm_eps,
                       width);
            linear(a, norm, find(r, "h.%u.mlp.c_fc.weight", block), find(r, "h.%u.mlp.c_fc.bias", block), wide,
                   width);
            for (uint32_t i = 0; i < wide; i++)
                a[i] = gelu(a[i]);
            linear(out, a, find(r, "h.%u.mlp.c_proj.weight", block), find(r, "h.%u.mlp.c_proj.bias", block), width,
                   wide);
        } else {
            rms_norm(norm, xt, find(r, "model.layers.%u.post_attention_layernorm.weight", block), c->norm_eps, width);
            linear(a, norm, find(r, "model.layers.%u.mlp.gate_proj.weight", block), NULL, wide, width);
            linear(b, norm, find(r, "model.layers.%u.mlp.up_proj.weight", block), NULL, wide, width);
            for (uint32_t i = 0; i < wide; i++)
                a[i] = silu(a[i]) * b[i];
            linear(out, a, find(r, "model.layers.%u.mlp.down_proj.weight", block), NULL, width, wide);
        }
        add_branch(r, random, x, out, t);
    }
    free(norm), free(out), free(a), free(b);
}

static const double *head_weight(const struct reference_model *r)
{
    if (!r->config.tied_head)
        return find(r, "lm_head.weight", 0);
    return find(r, r->config.family == EO_FAMILY_GPT2 ? "wte.weight" : "model.embed_tokens.weight", 0);
}

static double sequence_loss(const struct reference_model *r, eo_random_place random, const int32_t *tokens,
                            const int32_t *targets, uint32_t seq, double *last_logits)
{
    const eo_transformer_config *c = &r->config;
    const uint32_t width = c->width;
    const bool gpt2 = c->family == EO_FAMILY_GPT2;
    double *x = calloc((size_t)seq * width, sizeof(double)), *norm = calloc(width, sizeof(double));
    double *logits = calloc(c->vocabulary, sizeof(double)), loss = 0;
    for (uint32_t t = 0; t < seq; t++)
        for (uint32_t i = 0; i < width; i++)
            x[(size_t)t * width + i] =
                gpt2 ? find(r, "wte.weight", 0)[(size_t)tokens[t] * width + i] +
                           find(r, "wpe.weight", 0)[(size_t)t * width + i]
                     : find(r, "model.embed_tokens.weight", 0)[(size_t)tokens[t] * width + i];
    for (uint32_t block = 0; block < c->layer_count; block++) {
        random.position = 2 * block;
        attention(r, &random, block, x, seq);
        random.position++;
        mlp(r, &random, block, x, seq);
    }
    for (uint32_t t = 0; t < seq; t++) {
        if (gpt2)
            layer_norm(norm, x + (size_t)t * width, find(r, "ln_f.weight", 0), find(r, "ln_f.bias", 0), c->norm_eps,
                       width);
        else
            rms_norm(norm, x + (size_t)t * width, find(r, "model.norm.weight", 0), c->norm_eps, width);
        linear(logits, norm, head_weight(r), NULL, c->vocabulary, width);
        double sum = 0, largest = -INFINITY;
        for (uint32_t i = 0; i < c->vocabulary; i++)
            largest = logits[i] > largest ? logits[i] : largest;
        for (uint32_t i = 0; i < c->vocabulary; i++)
            sum += exp(logits[i] - largest);
        loss += log(sum) + largest - logits[targets[t]];
    }
    if (last_logits)
        memcpy(last_logits, logits, c->vocabulary * sizeof(double));
    free(x), free(norm), free(logits);
    return loss;
}

double reference_loss(const struct reference_model *reference, const int32_t *tokens, const int32_t *targets,
                      uint32_t batch, uint32_t seq, double *logits)
{
    double sum = 0;
    eo_random_place random = reference->random;
    for (uint32_t b = 0; b < batch; b++, random.sample++)
        sum += sequence_loss(reference, random, tokens + (size_t)b * seq, targets + (size_t)b * seq, seq,
                             b == 0 ? logits : NULL);
    return sum / batch / seq;
}
