// Rotary positions, forward and, with a negative scaling, backward: one thread for each row and each pair of entries of
// a head, as all heads turn by the same angles.

#include "common.cuh"

// (a, b) becomes (a cos - b sin, a sin + b cos) for the pairs of the first n_heads heads; the others are copied. The
// angle is position / scaling times the frequency of the pair.
extern "C" __global__ void rotary(
    const STORED* x, const Index* positions, const double* frequencies, STORED* y, Index size, Index K, Index n_heads,
    Index n_plain, double scaling, bool halves) {
  Index i = this_element(), row = i / (K / 2), pair = i % (K / 2), apart = halves ? K / 2 : 1;
  if (i >= size) return;
  double angle = positions[row] / scaling * frequencies[pair];
  REAL c = cos(angle), s = sin(angle);
  Index at = row * (n_heads + n_plain) * K + (halves ? pair : 2 * pair);
  for (Index head = 0; head < n_heads + n_plain; head++, at += K) {
    REAL a = load(x, at), b = load(x, at + apart);
    store(y, at, head < n_heads ? a * c - b * s : a);
    store(y, at + apart, head < n_heads ? a * s + b * c : b);
  }
}
