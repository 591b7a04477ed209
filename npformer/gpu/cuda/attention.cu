// Attention that returns its weights: one block of threads for each query, that is for each row of S scores.

#include "common.cuh"

// The mask of a query: nullptr if it has none.
__device__ __forceinline__ const bool* mask_of_row(
    const bool* mask, Index row, Index H, Index T, Index mask_batch, Index mask_head, Index mask_row) {
  return mask ? mask + row / T / H * mask_batch + row / T % H * mask_head + row % T * mask_row : mask;
}

// Turns products q kᵀ into softmax(scale q kᵀ) over the visible keys and 0 for the others, in place.
extern "C" __global__ void weigh(
    STORED* scores, Index H, Index T, Index S, REAL scale, const bool* mask, Index mask_batch, Index mask_head,
    Index mask_row, Index mask_column, bool causal) {
  scores += blockIdx.x * S;
  mask = mask_of_row(mask, blockIdx.x, H, T, mask_batch, mask_head, mask_row);
  Index last_seen = causal ? blockIdx.x % T + S - T : S;
  REAL peak = peak_of(S, [&](Index s) {
    bool seen = s <= last_seen && (!mask || mask[s * mask_column]);
    REAL score = seen ? load(scores, s) * scale : REAL(-INFINITY);
    store(scores, s, score);  // rounded, so that the largest one minus the peak is 0
    return score;
  });
  REAL total = sum_of(S, [&](Index s) { return exp(load(scores, s) - peak); });
  REAL share = total == 0 ? REAL(0) : 1 / total;
  for (Index s = threadIdx.x; s < S; s += blockDim.x) store(scores, s, exp(load(scores, s) - peak) * share);
}

// Turns gradients of the weights after dropout into gradients of the scores, times scale, in place. A weight of 0 gives
// a gradient of 0.
extern "C" __global__ void differentiate(
    const STORED* weights, STORED* dweights, Index S, REAL scale, const unsigned* key, unsigned threshold,
    REAL kept_scale) {
  Index first = blockIdx.x * S;
  weights += first;
  dweights += first;
  auto dweight = [&](Index s) {
    bool passes = load(weights, s) != 0 && is_kept(first + s, key, threshold);
    return passes ? load(dweights, s) * kept_scale : REAL(0);
  };
  REAL sum = sum_of(S, [&](Index s) { return dweight(s) * load(weights, s); });
  for (Index s = threadIdx.x; s < S; s += blockDim.x) {
    REAL weight = load(weights, s);
    store(dweights, s, weight == 0 ? REAL(0) : weight * (dweight(s) - sum) * scale);
  }
}
