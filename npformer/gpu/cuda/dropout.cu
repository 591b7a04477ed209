// Dropout: one thread for each element.

#include "common.cuh"

extern "C" __global__ void dropout(
    const STORED* x, STORED* y, Index size, const unsigned* key, unsigned threshold, REAL factor) {
  Index i = this_element();
  if (i < size) store(y, i, is_kept(i, key, threshold) ? load(x, i) * factor : REAL(0));
}
