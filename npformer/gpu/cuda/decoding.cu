// The kernels for decoding one token at a time that training does not need.

#include "common.cuh"

// Attention of one query to keys and values in a table: one block for each row and each head of width K. Row b attends
// to the entries at[b, 0], at[b, 1], ... of the table. An entry holds the keys of all heads, then their values, each
// kv_width numbers; several heads of queries may share one. The step from one query to the next is q_row numbers, and
// weights (B, H, S) is working memory.
extern "C" __global__ void cached_attention(
    const STORED* q, Index q_row, const STORED* kv, const Index* at, const bool* keep_mask, REAL* weights,
    STORED* out, Index S, Index K, Index kv_width, REAL scale) {
  Index D = gridDim.y * K, row = blockIdx.x, head = blockIdx.y * K, kv_head = blockIdx.y / (D / kv_width) * K;
  q += row * q_row + head;
  at += row * S;
  weights += (row * gridDim.y + blockIdx.y) * S;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;

  for (Index s = warp; s < S; s += n_warps) {  // one warp for each key
    const STORED* k = kv + at[s] * 2 * kv_width + kv_head;
    REAL score = 0;
    for (Index i = lane; i < K; i += 32) score += load(q, i) * scale * load(k, i);
    score = warp_sum(score);
    if (lane == 0) weights[s] = !keep_mask || keep_mask[row * S + s] ? score : REAL(-INFINITY);
  }
  __syncthreads();

  REAL peak = peak_of(S, [&](Index s) { return weights[s]; });
  REAL total = sum_of(S, [&](Index s) { return weights[s] = exp(weights[s] - peak); });  // waits until all are written
  total = total == 0 ? REAL(1) : total;

  for (Index i = threadIdx.x; i < K; i += blockDim.x) {
    REAL sum = 0;
    for (Index s = 0; s < S; s++)
      if (weights[s] != 0) sum += weights[s] * load(kv, at[s] * 2 * kv_width + kv_width + kv_head + i);
    store(out, row * D + head + i, sum / total);
  }
}

// The positions of the n_best largest entries in each row of n numbers of x, and the values of y at these positions. Of
// equal entries the first comes first; NaN counts as -inf. One block for each row.
extern "C" __global__ void largest(
    const STORED* x, const STORED* y, STORED* values, Index* ids, Index n, Index n_best) {
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  REAL last = INFINITY;
  Index last_id = -1;
  for (Index rank = 0; rank < n_best; rank++) {  // find the largest entry that comes after the last one found
    REAL best = -INFINITY;
    Index id = n;
    for (Index i = threadIdx.x; i < n; i += blockDim.x) {
      REAL value = isnan(load(x, i)) ? REAL(-INFINITY) : load(x, i);
      bool comes_after = value < last || (value == last && i > last_id);
      if (comes_after && (value > best || id == n)) best = value, id = i;
    }
    last = block_max(best);
    last_id = over_block(best == last ? id : n, n, [](Index a, Index b) { return min(a, b); });
    if (threadIdx.x == 0) {
      store(values, blockIdx.x * n_best + rank, load(y, last_id));
      ids[blockIdx.x * n_best + rank] = last_id;
    }
  }
}
