// Corrects matrix products as npformer.reference.math.product defines them: an exact 0 annihilates NaN and inf.

#include "common.cuh"

// Entries of out (N, n, p), the products of N matrices a (n, m) and b (m, p), that are not finite are computed again
// without the terms in which a or b is 0; among the other terms, NaN and inf make the sum NaN. Entries that are finite
// are only read. The steps of a and b are those from one matrix, row and column to the next, in numbers.
extern "C" __global__ void mend(
    STORED* out, const STORED* a, Index a_matrix, Index a_row, Index a_column, const STORED* b, Index b_matrix,
    Index b_row, Index b_column, Index size, Index n, Index m, Index p) {
  Index element = this_element();
  if (element >= size || isfinite(load(out, element))) return;
  Index matrix = element / (n * p), i = element / p % n, j = element % p;
  a += matrix * a_matrix + i * a_row;
  b += matrix * b_matrix + j * b_column;
  REAL sum = 0;
  for (Index k = 0; k < m; k++) {
    REAL left = load(a, k * a_column), right = load(b, k * b_row);
    if (left == 0 || right == 0) continue;
    sum += isfinite(left) && isfinite(right) ? left * right : REAL(NAN);
  }
  store(out, element, sum);
}
