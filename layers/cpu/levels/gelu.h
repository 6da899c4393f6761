/* SPDX-License-Identifier: MIT
 *
 * GELU, the tanh form, at one level (see vector.h).
 *
 * gelu(x) = x (1 + tanh(u)) / 2 = x s with s = 1 / (1 + e^(-2u)) and 2u = x (A + B x^2): no cancellation where the
 * tanh is near -1.
 */
#ifndef EO_LAYERS_CPU_LEVELS_GELU_H
#define EO_LAYERS_CPU_LEVELS_GELU_H

#define GELU_A 1.5957691216f /* 2 sqrt(2 / pi) */
#define GELU_B 0.0713548162726f

/* -2u */
INLINE vf gelu_exponent(vf x)
{
    return x * v_fma(x * x, v_set(-GELU_B), v_set(-GELU_A));
}

INLINE vf gelu_sigmoid(vf x)
{
    return v_sigmoid_of_negated(gelu_exponent(x));
}

/* Beyond +-9.9 it is that of the bound, 1 or -3e-35: x^3 may not become infinite. There 2u is 85, inside e^x's range. */
INLINE vf gelu_slope(vf at)
{
    const vf x = v_max(v_set(-9.9f), v_min(v_set(9.9f), at));
    const vf s = v_reciprocal(v_set(1) + v_exp_inside(gelu_exponent(x)));
    const vf inner = v_fma(x * x, v_set(3 * GELU_B), v_set(GELU_A));
    return v_fma(x * inner, s * (v_set(1) - s), s);
}

#endif
