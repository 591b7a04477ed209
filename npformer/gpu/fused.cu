// Passes over the elements of an array: activations, dropout, and what follows a matrix product, together.

#include "common.cuh"

enum { RELU, GELU, SILU };
const REAL SQRT_2_OVER_PI = 0.79788456080286535588, CUBIC = 0.044715;

__device__ __forceinline__ REAL activation_of(REAL x, int code) {
  if (code == RELU) return x <= 0 ? REAL(0) : x;
  if (code == GELU) return x / 2 * (1 + tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)));
  return x / (1 + exp(-x));
}

__device__ __forceinline__ REAL slope_of(REAL x, int code) {
  if (code == RELU) return x <= 0 ? REAL(0) : REAL(1);
  if (code == GELU) {
    REAL t = tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x);
  }
  REAL s = 1 / (1 + exp(-x));
  return s * (1 + x * (1 - s));
}

extern "C" __global__ void activate(const STORED* x, STORED* y, Index size, int code) {
  Index i = this_element();
  if (i < size) store(y, i, activation_of(load(x, i), code));
}

// dy · slope; a dy of 0 passes nothing, even where x holds NaN
extern "C" __global__ void activate_backward(const STORED* dy, const STORED* x, STORED* dx, Index size, int code) {
  Index i = this_element();
  if (i >= size) return;
  REAL d = load(dy, i);
  store(dx, i, d == 0 ? REAL(0) : d * slope_of(load(x, i), code));
}

extern "C" __global__ void dropout(
    const STORED* x, STORED* y, Index size, const unsigned* key, unsigned threshold, REAL factor) {
  Index i = this_element();
  if (i < size) store(y, i, is_kept(i, key, threshold) ? load(x, i) * factor : REAL(0));
}

// h += bias
extern "C" __global__ void add_bias(STORED* h, const STORED* bias, Index size, Index n_columns) {
  Index i = this_element();
  if (i < size) store(h, i, load(h, i) + load(bias, i % n_columns));
}

// h += bias; y = dropout(activation(h))
extern "C" __global__ void add_bias_activate_drop(
    STORED* h, const STORED* bias, STORED* y, Index size, Index n_columns, int code, const unsigned* key,
    unsigned threshold, REAL factor) {
  Index i = this_element();
  if (i >= size) return;
  REAL sum = load(h, i) + load(bias, i % n_columns);
  store(h, i, sum);
  store(y, i, is_kept(i, key, threshold) ? activation_of(sum, code) * factor : REAL(0));
}

// dh = slope(h) dropout(dy)
extern "C" __global__ void activate_drop_backward(
    const STORED* dy, const STORED* h, STORED* dh, Index size, int code, const unsigned* key, unsigned threshold,
    REAL factor) {
  Index i = this_element();
  if (i >= size) return;
  REAL d = is_kept(i, key, threshold) ? load(dy, i) * factor : REAL(0);
  store(dh, i, d == 0 ? REAL(0) : d * slope_of(load(h, i), code));
}

// y = residual + dropout(y + bias)
extern "C" __global__ void add_bias_drop_residual(
    STORED* y, const STORED* bias, const STORED* residual, Index size, Index n_columns, const unsigned* key,
    unsigned threshold, REAL factor) {
  Index i = this_element();
  if (i >= size) return;
  REAL kept = is_kept(i, key, threshold) ? (load(y, i) + load(bias, i % n_columns)) * factor : REAL(0);
  store(y, i, load(residual, i) + kept);
}
