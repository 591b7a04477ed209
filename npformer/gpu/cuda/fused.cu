// The operations that follow a matrix product, in one pass over its elements, or each of them alone: a bias or residual
// of nullptr is 0, and a threshold of 0 drops nothing.

#include "activations.cuh"

__device__ __forceinline__ REAL with_bias(const STORED* h, const STORED* bias, Index i, Index n_columns) {
  return bias ? load(h, i) + load(bias, i % n_columns) : load(h, i);
}

// y has rows of n numbers, and h rows of 2 n, in which two such rows are side by side. Returns the index in h of the
// element of the first half that belongs to element i of y; that of the second half is n further.
__device__ __forceinline__ Index first_of_two(Index i, Index n) { return i + i / n * n; }

// h += bias; y = dropout(activation(h)). Without a bias, h is only read. With a gate, the activation of the first half
// of h's columns is multiplied by the second half.
extern "C" __global__ void add_bias_activate_drop(
    STORED* h, const STORED* bias, STORED* y, Index size, Index n_columns, Index n_gates, int code,
    const unsigned* key, unsigned threshold, REAL kept_scale) {
  Index i = this_element();
  if (i >= size) return;
  Index at = n_gates > 1 ? first_of_two(i, n_columns) : i;
  REAL sum = with_bias(h, bias, at, n_gates * n_columns), result = activation_of(sum, code);
  if (bias) store(h, at, sum);
  if (n_gates > 1) {
    REAL gate = with_bias(h, bias, at + n_columns, n_gates * n_columns);
    if (bias) store(h, at + n_columns, gate);
    result *= gate;
  }
  store(y, i, is_kept(i, key, threshold) ? result * kept_scale : REAL(0));
}

// dh = slope(h) dropout(dy). With a gate, dh also holds the gradient of the gate.
extern "C" __global__ void activate_drop_backward(
    const STORED* dy, const STORED* h, STORED* dh, Index size, Index n_columns, Index n_gates, int code,
    const unsigned* key, unsigned threshold, REAL kept_scale) {
  Index i = this_element();
  if (i >= size) return;
  Index at = n_gates > 1 ? first_of_two(i, n_columns) : i;
  REAL d = is_kept(i, key, threshold) ? load(dy, i) * kept_scale : REAL(0), sum = load(h, at);
  if (n_gates > 1) {
    store(dh, at + n_columns, d * activation_of(sum, code));
    d *= load(h, at + n_columns);
  }
  bool is_cut = code == RELU && sum <= 0;  // also an infinite gradient is 0 there
  store(dh, at, is_cut ? REAL(0) : d * slope_of(sum, code));
}

// y = residual + dropout(h + bias), where y may be h.
extern "C" __global__ void add_bias_drop_residual(
    const STORED* h, const STORED* bias, const STORED* residual, STORED* y, Index size, Index n_columns,
    const unsigned* key, unsigned threshold, REAL kept_scale) {
  Index i = this_element();
  if (i >= size) return;
  REAL kept = is_kept(i, key, threshold) ? with_bias(h, bias, i, n_columns) * kept_scale : REAL(0);
  store(y, i, residual ? load(residual, i) + kept : kept);
}
