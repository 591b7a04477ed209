// What follows a matrix product, in one pass over its elements. A bias or residual that is nullptr is 0.

#include "activations.cuh"

__device__ __forceinline__ REAL with_bias(const STORED* h, const STORED* bias, Index i, Index n_columns) {
  return bias ? load(h, i) + load(bias, i % n_columns) : load(h, i);
}

// h += bias; y = dropout(activation(h))
extern "C" __global__ void add_bias_activate_drop(
    STORED* h, const STORED* bias, STORED* y, Index size, Index n_columns, int code, const unsigned* key,
    unsigned threshold, REAL factor) {
  Index i = this_element();
  if (i >= size) return;
  REAL sum = with_bias(h, bias, i, n_columns);
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
  store(dh, i, d * slope_of(load(h, i), code));
}

// y = residual + dropout(y + bias)
extern "C" __global__ void add_bias_drop_residual(
    STORED* y, const STORED* bias, const STORED* residual, Index size, Index n_columns, const unsigned* key,
    unsigned threshold, REAL factor) {
  Index i = this_element();
  if (i >= size) return;
  REAL kept = is_kept(i, key, threshold) ? with_bias(y, bias, i, n_columns) * factor : REAL(0);
  store(y, i, residual ? load(residual, i) + kept : kept);
}
