/* SPDX-License-Identifier: MIT
 *
 * Muon's matrices between the norm and the update: Newton and Schulz's iteration brings the singular values of the momentum
 * near 1 (Jordan, https://kellerjordan.github.io/posts/muon/), five steps of X = a X + (b G + c G G) X with G = X X^T, or of the
 * same from the other side where a matrix has more rows than columns. The products are the trainer's.
 */
#include <math.h>
#include <string.h>

#include "base/arithmetic.h"
#include "runtime/internal.h"

void eo_muon_direction(struct eo_runtime *rt, uint32_t l)
{
    if (rt->params.gradient)
        eo_update_call_gradient(rt, l);
    eo_update_ranges(rt, l, true, EO_RULE_DIRECTION);
}

static float element(const float *values, bool transposed, uint64_t row, uint64_t column, uint64_t rows, uint64_t columns)
{
    return values[transposed ? column * rows + row : row * columns + column];
}

/* Memory of the host; for trainers without a product of their own. */
static eo_status multiply_plainly(const eo_matrix_product *p)
{
    for (uint64_t i = 0; i < p->m; i++) {
        float *c = p->c + i * p->n;
        if (!p->accumulate)
            memset(c, 0, p->n * sizeof(*c));
        for (uint64_t k = 0; k < p->k; k++) {
            const float a = element(p->a, p->transpose_a, i, k, p->m, p->k);
            for (uint64_t j = 0; j < p->n; j++)
                c[j] += a * element(p->b, p->transpose_b, k, j, p->k, p->n);
        }
    }
    return EO_OK;
}

static eo_status multiply(struct eo_runtime *rt, const eo_matrix_product *product)
{
    return rt->params.product ? rt->params.product(rt->params.product_user, product) : multiply_plainly(product);
}

/* to = a from + (b G + c G G) from; `gram` has room for G and what is made of it. */
static eo_status iterate(struct eo_runtime *rt, float *to, const float *from, float *gram, uint64_t rows, uint64_t columns)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const bool tall = rows > columns;
    const uint64_t small = tall ? columns : rows, large = tall ? rows : columns, room = eo_align_up(small * small, 16);
    float *square = gram + room;
    EO_TRY(multiply(rt, &(eo_matrix_product){.c = gram, .a = from, .b = from, .m = small, .n = small, .k = large,
                                             .transpose_a = tall, .transpose_b = !tall}));
    EO_TRY(multiply(rt, &(eo_matrix_product){.c = square, .a = gram, .b = gram, .m = small, .n = small, .k = small}));
    ops->combine(rt->device, square, gram, -4.7750f, square, 2.0315f, NULL, small * small);
    ops->combine(rt->device, to, from, 3.4445f, NULL, 0, NULL, rows * columns);
    return multiply(rt, &(eo_matrix_product){.c = to, .a = tall ? from : square, .b = tall ? square : from, .m = rows,
                                             .n = columns, .k = small, .accumulate = true});
}

/* Scaled as AdamW's updates are large, so that one learning rate serves all parameters. */
static eo_status orthogonalize(struct eo_runtime *rt, float *matrix, uint64_t rows, uint64_t columns)
{
    _Static_assert(EO_MATRIX_STEPS % 2, "from the scratch the last one ends in the matrix");
    const struct eo_device_ops *ops = rt->device->ops;
    const uint64_t count = rows * columns;
    double *squares = rt->update.orthogonal;
    float *other = (float *)((char *)rt->update.orthogonal + EO_MATRIX_SUM_BYTES), *gram = other + eo_align_up(count, 16);
    ops->sum_squares(rt->device, EO_QUEUE_COMPUTE, squares, matrix, count, NULL);
    ops->combine(rt->device, other, matrix, 1, NULL, 0, squares, count);
    for (int step = 0; step < EO_MATRIX_STEPS; step++)
        EO_TRY(iterate(rt, step % 2 ? other : matrix, step % 2 ? matrix : other, gram, rows, columns));
    ops->combine(rt->device, matrix, matrix, 0.2f * sqrtf((float)eo_max_u64(rows, columns)), NULL, 0, NULL, count);
    return EO_OK;
}

/* In the middle of a step, which the other ranks go on with: even a refusal of the trainer's product ends the training. */
static eo_status fail_product(struct eo_runtime *rt, eo_status status, const struct plan_parameter *parameter)
{
    return eo_runtime_fail(rt, status == EO_ERR_NO_MEMORY ? status : EO_ERR_DEVICE, "a product of parameter '%s' for Muon: %s",
                           parameter->name, eo_status_text(status));
}

/* Zeros for what others own, and for all that is no matrix: the ranks' results are added up. */
eo_status eo_muon_orthogonalize(struct eo_runtime *rt, uint32_t l)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    float *all = rt->shards.layers[l].matrices;
    uint64_t done = 0;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        if (parameter->owner != rt->shards.rank)
            continue;
        rt->device->ops->zero(rt->device, all + done, (parameter->offset - done) * sizeof(float));
        const eo_status status = orthogonalize(rt, all + parameter->offset, parameter->dims[0], parameter->dims[1]);
        if (status < 0)
            return fail_product(rt, status, parameter);
        done = parameter->offset + parameter->element_count;
    }
    rt->device->ops->zero(rt->device, all + done, (layer->layout.padded_count - done) * sizeof(float));
    return EO_OK;
}
