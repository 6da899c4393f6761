/* SPDX-License-Identifier: MIT
 *
 * Goal: what sdpa_check holds a GPU against is right, and sees what is wrong.
 * Method: attention of the CPU's fp32 kernels agrees with it; with one value changed in any of the five results it does
 *         not.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "layers/element.h"
#include "layers/kernel_ops.h"
#include "sdpa_reference.h"
#include "tests/tap/tap.h"

static uint64_t random_state = 4711;

static float *random_floats(uint64_t count)
{
    float *values = malloc(count * sizeof(*values));
    for (uint64_t i = 0; values && i < count; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((double)(random_state >> 11) * 0x1p-52 - 1);
    }
    if (!values) {
        puts("Bail out! no memory");
        exit(1);
    }
    return values;
}

static double largest(const struct sdpa_errors *e)
{
    return fmax(fmax(e->out, e->log_sum_exp), fmax(e->q_gradient, fmax(e->k_gradient, e->v_gradient)));
}

static void check(struct eo_attention_shape shape, const char *name)
{
    const uint64_t rows = (uint64_t)shape.batch * shape.seq, d = shape.head_size;
    const uint64_t width = (shape.head_count + 2 * shape.kv_head_count) * d, out_width = shape.head_count * d;
    shape.q_stride = shape.kv_stride = width;
    shape.out_stride = out_width;
    float *packed = random_floats(rows * width), *gradients = random_floats(rows * width);
    float *out = random_floats(rows * out_width), *out_gradient = random_floats(rows * out_width);
    float *log_sum_exp = random_floats(rows * shape.head_count);
    const struct eo_kernel_ops *ops = &eo_kernels_cpu_ops;
    const struct eo_types fp32 = {EO_DTYPE_FP32, EO_DTYPE_FP32};
    float *scratch = random_floats(ops->attention_scratch_bytes(fp32, &shape, 1) / sizeof(float) + 1);
    const uint64_t k_at = out_width, v_at = out_width + shape.kv_head_count * d;
    const struct eo_attention attention = {
        .types = fp32, .shape = shape, .q = packed, .k = packed + k_at, .v = packed + v_at, .out = out,
        .log_sum_exp = log_sum_exp, .out_gradient = out_gradient, .q_gradient = gradients,
        .k_gradient = gradients + k_at, .v_gradient = gradients + v_at, .scratch = scratch,
    };
    ops->attention_forward(NULL, &attention);
    ops->attention_backward(NULL, &attention);
    const struct sdpa_host host = {
        .shape = shape, .q = packed, .k = packed + k_at, .v = packed + v_at, .out_gradient = out_gradient, .out = out,
        .log_sum_exp = log_sum_exp, .q_gradient = gradients, .k_gradient = gradients + k_at,
        .v_gradient = gradients + v_at,
    };
    struct sdpa_errors errors = sdpa_compare(&host, 64);
    printf("# %llu rows: out %.1e, lse %.1e, dq %.1e, dk %.1e, dv %.1e\n", (unsigned long long)errors.row_count,
           errors.out, errors.log_sum_exp, errors.q_gradient, errors.k_gradient, errors.v_gradient);
    tap(errors.row_count == 64 && largest(&errors) < 1e-5, "%s", name);

    /* The last token of the first sequence is among what is looked at; so is the first head of each kind. */
    const uint64_t last = shape.seq - 1;
    float *const changed[] = {&out[last * out_width], &log_sum_exp[last], &gradients[last * width],
                              &gradients[last * width + k_at], &gradients[last * width + v_at]};
    bool seen = true;
    for (int i = 0; i < 5; i++) {
        const float kept = *changed[i];
        *changed[i] = i == 4 ? NAN : kept + 1;
        errors = sdpa_compare(&host, 8 * shape.seq * shape.head_count); /* the last token meets every head */
        seen = seen && !(largest(&errors) < 1e-3);
        *changed[i] = kept;
    }
    tap(seen, "one wrong value in any of the results is seen");
    free(packed);
    free(gradients);
    free(out);
    free(out_gradient);
    free(log_sum_exp);
    free(scratch);
}

int main(void)
{
    check((struct eo_attention_shape){.batch = 2, .seq = 37, .head_count = 4, .kv_head_count = 4, .head_size = 16},
          "attention of the CPU agrees with the reference");
    check((struct eo_attention_shape){.batch = 1, .seq = 64, .head_count = 6, .kv_head_count = 2, .head_size = 8},
          "the same with shared heads of keys");
    return tap_end();
}
