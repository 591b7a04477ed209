// The bias of a linear map.

#include "common.cuh"

// y += bias
extern "C" __global__ void add_bias(STORED* y, const STORED* bias, Index size, Index n_columns) {
  Index i = this_element();
  if (i < size) store(y, i, load(y, i) + load(bias, i % n_columns));
}
