// Activations, forward and backward: one thread for each element.

#include "activations.cuh"

extern "C" __global__ void activate(const STORED* x, STORED* y, Index size, int code) {
  Index i = this_element();
  if (i < size) store(y, i, activation_of(load(x, i), code));
}

// dx = dy · slope(x)
extern "C" __global__ void activate_backward(const STORED* dy, const STORED* x, STORED* dx, Index size, int code) {
  Index i = this_element();
  if (i < size) store(dx, i, load(dy, i) * slope_of(load(x, i), code));
}
