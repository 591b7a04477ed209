// What the kernels for attention in tiles share, with and without tensor cores: the arguments of a head, and its mask.
//
// Every array comes with its steps, in numbers, from one batch, head and row to the next; rows are contiguous. n_shared
// neighbouring heads of queries have the same head g of keys and values.

#pragma once
#include "common.cuh"

// The sizes, the mask and the options of one head.
struct Head {
  Index queries, keys, width, value_width;  // T, S, K, Kv
  const bool* mask;                         // of this head, or nullptr
  Index mask_row, mask_column;              // steps of the mask, 0 where it is broadcast
  bool causal;
  Index first_element;  // the index of its first weight in (B, H, T, S), for dropout
  const unsigned* key;
  unsigned threshold;
  REAL kept_scale;
};

__device__ __forceinline__ bool is_visible(const Head& head, Index query, Index key) {
  if (query >= head.queries || key >= head.keys) return false;
  if (head.causal && key > query + head.keys - head.queries) return false;
  return !head.mask || head.mask[query * head.mask_row + key * head.mask_column];
}

// A weight after dropout.
__device__ __forceinline__ REAL drop(const Head& head, Index query, Index key, REAL weight) {
  bool kept = is_kept(head.first_element + query * head.keys + key, head.key, head.threshold);
  return kept ? weight * head.kept_scale : REAL(0);
}

// The end of the keys that are visible to a tile of queries, and the first query that may see first_key or a later key.
__device__ __forceinline__ Index end_of_keys(const Head& head, Index end_of_queries) {
  Index end = min(end_of_queries, head.queries) + head.keys - head.queries;
  return head.causal ? max(Index(0), min(head.keys, end)) : head.keys;
}

__device__ __forceinline__ Index first_query_of(const Head& head, Index first_key) {
  return head.causal ? max(Index(0), first_key + head.queries - head.keys) : 0;
}

#define HEADS(x) STORED *x, Index x##_batch, Index x##_head, Index x##_row

#define HEAD_ARGUMENTS                                                                                              \
  Index T, Index S, Index K, Index Kv, Index n_shared, REAL scale, const bool *mask, Index mask_batch,              \
      Index mask_head, Index mask_row, Index mask_column, bool causal, const unsigned *key, unsigned threshold,     \
      REAL kept_scale

#define THIS_HEAD                                                                                                   \
  Index h = blockIdx.y, g = h / n_shared, b = blockIdx.z, bh = b * gridDim.y + h;                                   \
  Head head = {T, S, K, Kv, mask ? mask + b * mask_batch + h * mask_head : mask, mask_row, mask_column,             \
               causal, bh * T * S, key, threshold, kept_scale}

#define BACKWARD_ARGUMENTS                                                                                          \
  const HEADS(dout), const HEADS(q), const HEADS(k), const HEADS(v), const REAL *shift, const REAL *inverse, REAL *sums

#define GO_TO_HEAD                                                                                                  \
  THIS_HEAD;                                                                                                        \
  dout += b * dout_batch + h * dout_head;                                                                           \
  q += b * q_batch + h * q_head;                                                                                    \
  k += b * k_batch + g * k_head;                                                                                    \
  v += b * v_batch + g * v_head;                                                                                    \
  shift += bh * T;                                                                                                  \
  inverse += bh * T;                                                                                                \
  sums += bh * T

// What the backward pass needs for each query: shift, its largest score, or +inf if it sees no key, so that its weights
// are 0; inverse, 1 / Σ exp(score - shift), or 0; and sums, Σ dout out. One thread adds the products of a query one after
// another, as add_scores does. So a query that sees one key only, whose value is its output, subtracts the very number
// that the gradient of the weight is, and the gradient of the score is 0.
extern "C" __global__ void prepare_backward(
    const HEADS(dout), const HEADS(out), const REAL* peak, const REAL* total, REAL* shift, REAL* inverse, REAL* sums,
    Index T, Index Kv) {
  Index h = blockIdx.y, b = blockIdx.z, query = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (query >= T) return;
  dout += b * dout_batch + h * dout_head + query * dout_row;
  out += b * out_batch + h * out_head + query * out_row;
  REAL sum = 0;
  for (Index i = 0; i < Kv; i++) sum += load(dout, i) * load(out, i);
  Index row = (b * gridDim.y + h) * T + query;
  bool seen = total[row] != 0;
  shift[row] = seen ? peak[row] : REAL(INFINITY);
  inverse[row] = seen ? 1 / total[row] : REAL(0);
  sums[row] = sum;
}
