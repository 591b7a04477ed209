// From token ids to vectors of n numbers, and the gradient of the table.

#include "common.cuh"

// y = dropout(scale table[id] + position), and zeros for padding: one block for each token. There may be no positions
// (nullptr) and no padding (pad_id -1).
extern "C" __global__ void embed(
    const Index* ids, const STORED* table, const REAL* positions, STORED* y, Index n, Index length, Index pad_id,
    REAL scale, const unsigned* key, unsigned threshold, REAL kept_scale) {
  Index token = blockIdx.x, id = ids[token], position = token % length;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) {
    REAL x = 0;
    if (id != pad_id) {
      x = load(table, id * n + i) * scale;
      if (positions) x += positions[position * n + i];
      x = is_kept(token * n + i, key, threshold) ? x * kept_scale : REAL(0);
    }
    store(y, token * n + i, x);
  }
}

// The gradient of the table: one block for each row of the table goes through all tokens and adds the dy of those with
// its id, in order, so the result is bitwise reproducible. No two threads write to the same place.
extern "C" __global__ void embed_backward(
    const STORED* dy, const Index* ids, STORED* dtable, Index n_tokens, Index n, Index pad_id, REAL scale,
    const unsigned* key, unsigned threshold, REAL kept_scale) {
  __shared__ Index found[1024];
  __shared__ int n_of_warp[32];
  Index id = blockIdx.x;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Index column = blockIdx.y * Index(blockDim.x) + threadIdx.x;
  REAL sum = 0;
  for (Index start = 0; start < n_tokens && id != pad_id; start += blockDim.x) {
    Index token = start + threadIdx.x;
    bool mine = token < n_tokens && ids[token] == id;
    unsigned of_warp = __ballot_sync(~0u, mine);
    if (lane == 0) n_of_warp[warp] = __popc(of_warp);
    __syncthreads();
    int before = __popc(of_warp & ((1u << lane) - 1)), n_found = 0;
    for (int i = 0; i < int(blockDim.x) / 32; i++) {
      if (i == warp) before += n_found;
      n_found += n_of_warp[i];
    }
    if (mine) found[before] = token;
    __syncthreads();
    if (column < n)
      for (int i = 0; i < n_found; i++) {
        Index at = found[i] * n + column;
        if (is_kept(at, key, threshold)) sum += load(dy, at) * kept_scale;
      }
    __syncthreads();  // wait until found has been read, before it is filled again
  }
  if (column < n) store(dtable, id * n + column, sum * scale);
}
