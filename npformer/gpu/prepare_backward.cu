// Before the gradients of attention.

#include "common.cuh"

// What the backward pass needs of each query: Σ dout out, and its logsumexp, or +inf if it has no gradient or sees
// nothing, so that its weights are 0. A warp for each query.
extern "C" __global__ void prepare_backward(
    const STORED* dout, Index dout_batch, Index dout_head, Index dout_row, const STORED* out, Index out_batch,
    Index out_head, Index out_row, const REAL* logsumexp, REAL* shift, REAL* sums, Index T, Index Kv) {
  Index h = blockIdx.y, b = blockIdx.z, query = Index(blockIdx.x) * blockDim.y + threadIdx.y;
  if (query >= T) return;
  dout += b * dout_batch + h * dout_head + query * dout_row;
  out += b * out_batch + h * out_head + query * out_row;
  REAL sum = 0, used = 0;
  for (Index i = threadIdx.x; i < Kv; i += 32) {
    REAL d = load(dout, i);
    if (d == 0) continue;
    sum += d * load(out, i);
    used = 1;
  }
  sum = warp_sum(sum);
  used = warp_max(used);
  Index row = (b * gridDim.y + h) * T + query;
  if (threadIdx.x == 0) {
    shift[row] = used == 0 || logsumexp[row] == REAL(-INFINITY) ? REAL(INFINITY) : logsumexp[row];
    sums[row] = sum;
  }
}
