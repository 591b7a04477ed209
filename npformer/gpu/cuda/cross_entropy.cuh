// What the losses share: a row of n logits, and the logarithm of its softmax. The peak is subtracted from a logit
// first: the logarithm of the total would lose its digits if it were added to a large peak.

#pragma once
#include "common.cuh"

// A row of logits, with its peak (the largest logit, or 0 in a row of -inf), log Σ exp(logit - peak), Σ (logit - peak).
struct Row {
  const STORED* logits;
  REAL peak, log_total, sum;
};

__device__ __forceinline__ Row look_at(const STORED* logits, Index n) {
  REAL peak = peak_of(n, [&](Index i) { return load(logits, i); }), total = 0, sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    total += exp(load(logits, i) - peak);
    sum += load(logits, i) - peak;
  }
  total = block_sum(total);
  return {logits, peak, log(total == 0 ? REAL(1) : total), block_sum(sum)};
}

__device__ __forceinline__ REAL log_softmax(const Row& row, Index i) {
  return load(row.logits, i) - row.peak - row.log_total;
}

// -Σ q log p, where q is 1 - smoothing at the target, plus smoothing / n everywhere.
__device__ __forceinline__ REAL surprise(const Row& row, Index target, Index n, REAL smoothing) {
  REAL at_target = -(1 - smoothing) * log_softmax(row, target);
  return smoothing == 0 ? at_target : at_target - smoothing * (row.sum / n - row.log_total);
}

__device__ __forceinline__ REAL wanted(Index i, Index target, Index n, REAL smoothing) {
  return smoothing / n + (i == target ? 1 - smoothing : REAL(0));
}

__device__ __forceinline__ void clear(STORED* row, Index n) {
  for (Index i = threadIdx.x; i < n; i += blockDim.x) store(row, i, 0);
}

// The sum of n numbers, by one block.
extern "C" __global__ void add_up(const REAL* x, REAL* sum, Index n) {
  REAL all = sum_of(n, [&](Index i) { return x[i]; });
  if (threadIdx.x == 0) *sum = all;
}
