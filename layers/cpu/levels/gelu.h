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

/* Of x, and its sigmoid s. Beyond +-9.9 x is held: x^3 may not become infinite, and s is 1 there, or next to 0. */
INLINE vf gelu_slope(vf at, vf s)
{
    const vf x = v_max(v_set(-9.9f), v_min(v_set(9.9f), at));
    const vf inner = v_fma(x * x, v_set(3 * GELU_B), v_set(GELU_A));
    return v_fma(x * inner, s * (v_set(1) - s), s);
}

#endif
