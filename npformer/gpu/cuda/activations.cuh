// Activations and their derivatives, of one number.

#pragma once
#include "common.cuh"

enum { RELU, GELU, GELU_ERF, SILU };
const REAL SQRT_2_OVER_PI = 0.79788456080286535588, CUBIC = 0.044715;
const REAL SQRT_HALF = 0.70710678118654752440, ONE_OVER_SQRT_2PI = 0.39894228040143267794;

__device__ __forceinline__ REAL normal_distribution(REAL x) { return erfc(-SQRT_HALF * x) / 2; }

// ½ (1 + tanh(u)) as σ(2u), in which nothing cancels where u is negative.
__device__ __forceinline__ REAL gelu_gate(REAL x) { return sigmoid(2 * SQRT_2_OVER_PI * (x + CUBIC * x * x * x)); }

__device__ __forceinline__ REAL activation_of(REAL x, int code) {
  if (code == RELU) return x <= 0 ? REAL(0) : x;
  if (code == GELU) return x * gelu_gate(x);
  if (code == GELU_ERF) return x * normal_distribution(x);
  if (code == SILU) return x * sigmoid(x);
  return REAL(NAN);  // so that an activation without a line here is noticed
}

__device__ __forceinline__ REAL slope_of(REAL x, int code) {
  if (code == RELU) return x <= 0 ? REAL(0) : REAL(1);
  if (code == GELU) {
    if (x < -30 || x > 30) return x > 0;  // x * x may overflow
    REAL s = gelu_gate(x), slope_u = SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x);
    return s * (1 + 2 * x * (1 - s) * slope_u);
  }
  if (code == GELU_ERF) {
    if (x < -40 || x > 40) return x > 0;  // x * x may overflow
    return normal_distribution(x) + x * ONE_OVER_SQRT_2PI * exp(-x * x / 2);
  }
  if (code == SILU) {
    REAL s = sigmoid(x);
    return s * (1 + x * (1 - s));
  }
  return REAL(NAN);
}
