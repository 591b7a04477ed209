// Attention in tiles, forward and backward, as in npformer/reference/math/flash_attention.py: a block of 16 x 16 threads
// takes TILE queries (or, for dk and dv, TILE keys) of one head and loops over the keys (queries), tile by tile.
//
// In every product of two tiles, thread (x, y) holds the rows y, y + 16, ... and the columns x, x + 16, ... of the
// result in its registers. So the 16 threads with the same y, half a warp, together hold whole rows of the scores.
//
// Macros to set with -D: WIDTH, a multiple of 16 that is not less than the head widths, and TILE, small enough for the
// tiles to fit into 48 KB.

#include "flash_attention.cuh"

#ifndef WIDTH
#define WIDTH 64
#define TILE (sizeof(REAL) == 8 ? 16 : 32)
#endif

const int SIDE = 16, ROWS = TILE / SIDE, COLUMNS = WIDTH / SIDE;
const int STEP = WIDTH + 1, SCORE_STEP = TILE + 1;  // from row to row: padded by 1 to spread a column over all banks

// Copies rows first, first + 1, ... of x times scale into a tile, and zeros beyond the end of x. Returns whether all
// numbers are finite.
__device__ __forceinline__ bool load_tile(
    const STORED* x, Index first, Index n_rows, Index step, Index width, REAL scale, REAL* tile) {
  bool finite = true;
  for (int i = threadIdx.y * SIDE + threadIdx.x; i < TILE * WIDTH; i += SIDE * SIDE) {
    int row = i / WIDTH, column = i % WIDTH;
    bool inside = first + row < n_rows && column < width;
    REAL value = inside ? load(x, (first + row) * step + column) * scale : REAL(0);
    tile[row * STEP + column] = value;
    finite = finite && isfinite(value);
  }
  return finite;
}

// out += a bᵀ, where the rows of a are queries and the rows of b are keys.
__device__ __forceinline__ void add_scores(REAL out[ROWS][ROWS], const REAL* a, const REAL* b) {
  for (int k = 0; k < WIDTH; k++)
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < ROWS; j++)
        out[i][j] += a[(threadIdx.y + SIDE * i) * STEP + k] * b[(threadIdx.x + SIDE * j) * STEP + k];
}

// out += weights x, where element (row, s) of the weights is at row * row_step + s * column_step. If not all of x is
// finite, rows of x with weight 0 are skipped, so that 0 · NaN is 0.
__device__ __forceinline__ void add_weighted(
    REAL out[ROWS][COLUMNS], const REAL* weights, int row_step, int column_step, const REAL* x, bool finite) {
  for (int s = 0; s < TILE; s++)
    for (int i = 0; i < ROWS; i++) {
      REAL weight = weights[(threadIdx.y + SIDE * i) * row_step + s * column_step];
      if (!finite && weight == 0) continue;
      for (int c = 0; c < COLUMNS; c++) out[i][c] += weight * x[s * STEP + threadIdx.x + SIDE * c];
    }
}

__device__ __forceinline__ void store_rows(
    REAL rows[ROWS][COLUMNS], STORED* x, Index first, Index n_rows, Index step, Index width) {
  for (int i = 0; i < ROWS; i++)
    for (int c = 0; c < COLUMNS; c++) {
      Index row = first + threadIdx.y + SIDE * i, column = threadIdx.x + SIDE * c;
      if (row < n_rows && column < width) store(x, row * step + column, rows[i][c]);
    }
}

// Computes out, the largest score and Σ exp(score - largest) for TILE queries.
extern "C" __global__ void attention(
    const HEADS(q), const HEADS(k), const HEADS(v), HEADS(out), REAL* peaks, REAL* totals, HEAD_ARGUMENTS) {
  __shared__ REAL q_tile[TILE * STEP], kv_tile[TILE * STEP], weights[TILE * SCORE_STEP];
  THIS_HEAD;
  Index first_query = Index(blockIdx.x) * TILE;
  load_tile(q + b * q_batch + h * q_head, first_query, T, q_row, K, scale, q_tile);
  k += b * k_batch + g * k_head;
  v += b * v_batch + g * v_head;

  REAL peak[ROWS], total[ROWS], gathered[ROWS][COLUMNS] = {};
  for (int i = 0; i < ROWS; i++) peak[i] = -INFINITY, total[i] = 0;

  for (Index first_key = 0; first_key < end_of_keys(head, first_query + TILE); first_key += TILE) {
    __syncthreads();
    load_tile(k, first_key, S, k_row, K, 1, kv_tile);
    __syncthreads();
    REAL scores[ROWS][ROWS] = {};
    add_scores(scores, q_tile, kv_tile);

    for (int i = 0; i < ROWS; i++) {
      Index query = first_query + threadIdx.y + SIDE * i;
      REAL largest = peak[i], sum = 0;
      for (int j = 0; j < ROWS; j++) {
        if (!is_visible(head, query, first_key + threadIdx.x + SIDE * j)) scores[i][j] = -INFINITY;
        largest = max(largest, scores[i][j]);
      }
      largest = warp_max<SIDE>(largest);
      REAL shift = largest == REAL(-INFINITY) ? REAL(0) : largest;
      REAL shrink = exp(peak[i] - shift);
      for (int j = 0; j < ROWS; j++) {
        Index key_place = first_key + threadIdx.x + SIDE * j;
        REAL weight = exp(scores[i][j] - shift);
        sum += weight;
        weights[(threadIdx.y + SIDE * i) * SCORE_STEP + threadIdx.x + SIDE * j] = drop(head, query, key_place, weight);
      }
      peak[i] = largest;
      total[i] = total[i] * shrink + warp_sum<SIDE>(sum);
      for (int c = 0; c < COLUMNS; c++) gathered[i][c] *= shrink;
    }

    __syncthreads();  // wait until the keys have been read and the weights are written
    bool finite = load_tile(v, first_key, S, v_row, Kv, 1, kv_tile);
    finite = __syncthreads_and(finite);
    add_weighted(gathered, weights, SCORE_STEP, 1, kv_tile, finite);
  }

  for (int i = 0; i < ROWS; i++) {
    Index query = first_query + threadIdx.y + SIDE * i;
    bool seen = total[i] != 0;
    for (int c = 0; c < COLUMNS; c++) gathered[i][c] = seen ? gathered[i][c] / total[i] : REAL(0);
    if (threadIdx.x == 0 && query < T) peaks[bh * T + query] = peak[i], totals[bh * T + query] = total[i];
  }
  store_rows(gathered, out + b * out_batch + h * out_head, first_query, T, out_row, Kv);
}

// Computes the weights of one tile after dropout, and the gradients of its scores: weight = exp(score - shift) inverse,
// dscore = weight (dweight - row_sum). If the tile has all keys, the row sum is Σ weight dweight, divided by the sum of
// the weights, which is 1 except for rounding: so the gradients of the scores of a query add up to 0. Else it is
// Σ dout out, which is known before the first tile.
__device__ __forceinline__ void weigh_backward(
    const Head& head, Index first_query, Index first_key, const REAL* shift, const REAL* inverse, const REAL* sums,
    REAL scores[ROWS][ROWS], REAL dweights[ROWS][ROWS], REAL* dropped, REAL* dscores) {
  bool has_all_keys = head.keys <= TILE;
  for (int i = 0; i < ROWS; i++) {
    int row = threadIdx.y + SIDE * i;
    Index query = first_query + row;
    REAL row_sum = 0, sum_of_weights = 0;
    for (int j = 0; j < ROWS; j++) {
      Index key = first_key + threadIdx.x + SIDE * j;
      REAL weight = 0;
      if (is_visible(head, query, key) && inverse[query] != 0)
        weight = exp(scores[i][j] - shift[query]) * inverse[query];
      scores[i][j] = weight;
      dweights[i][j] = weight == 0 ? REAL(0) : drop(head, query, key, dweights[i][j]);
      row_sum += weight * dweights[i][j];
      sum_of_weights += weight;
    }
    if (has_all_keys)
      row_sum = warp_sum<SIDE>(row_sum) / warp_sum<SIDE>(sum_of_weights);
    else
      row_sum = query < head.queries ? sums[query] : REAL(0);
    for (int j = 0; j < ROWS; j++) {
      int column = threadIdx.x + SIDE * j, place = row * SCORE_STEP + column;
      REAL weight = scores[i][j];
      if (dropped) dropped[place] = weight == 0 ? REAL(0) : drop(head, query, first_key + column, weight);
      dscores[place] = weight == 0 ? REAL(0) : weight * (dweights[i][j] - row_sum);
    }
  }
}

// Computes dq for TILE queries.
extern "C" __global__ void attention_backward_q(
    BACKWARD_ARGUMENTS, HEADS(dq), HEAD_ARGUMENTS) {
  __shared__ REAL q_tile[TILE * STEP], dout_tile[TILE * STEP], kv_tile[TILE * STEP], dscores[TILE * SCORE_STEP];
  GO_TO_HEAD;
  Index first_query = Index(blockIdx.x) * TILE;
  load_tile(q, first_query, T, q_row, K, scale, q_tile);
  load_tile(dout, first_query, T, dout_row, Kv, 1, dout_tile);

  REAL gathered[ROWS][COLUMNS] = {};
  for (Index first_key = 0; first_key < end_of_keys(head, first_query + TILE); first_key += TILE) {
    REAL scores[ROWS][ROWS] = {}, dweights[ROWS][ROWS] = {};
    __syncthreads();
    load_tile(v, first_key, S, v_row, Kv, 1, kv_tile);
    __syncthreads();
    add_scores(dweights, dout_tile, kv_tile);
    __syncthreads();
    bool finite = load_tile(k, first_key, S, k_row, K, 1, kv_tile);
    finite = __syncthreads_and(finite);
    add_scores(scores, q_tile, kv_tile);
    weigh_backward(head, first_query, first_key, shift, inverse, sums, scores, dweights, nullptr, dscores);
    __syncthreads();
    add_weighted(gathered, dscores, SCORE_STEP, 1, kv_tile, finite);
  }
  for (int i = 0; i < ROWS; i++)
    for (int c = 0; c < COLUMNS; c++) gathered[i][c] *= scale;
  store_rows(gathered, dq + b * dq_batch + h * dq_head, first_query, T, dq_row, K);
}

// Computes dk and dv for TILE keys.
extern "C" __global__ void attention_backward_kv(
    BACKWARD_ARGUMENTS, HEADS(dk), HEADS(dv), HEAD_ARGUMENTS) {
  __shared__ REAL k_tile[TILE * STEP], v_tile[TILE * STEP], q_tile[TILE * STEP], dout_tile[TILE * STEP];
  __shared__ REAL dropped[TILE * SCORE_STEP], dscores[TILE * SCORE_STEP];
  GO_TO_HEAD;
  Index first_key = Index(blockIdx.x) * TILE;
  load_tile(k, first_key, S, k_row, K, 1, k_tile);
  load_tile(v, first_key, S, v_row, Kv, 1, v_tile);

  REAL of_keys[ROWS][COLUMNS] = {}, of_values[ROWS][COLUMNS] = {};
  for (Index first_query = first_query_of(head, first_key) / TILE * TILE; first_query < T; first_query += TILE) {
    REAL scores[ROWS][ROWS] = {}, dweights[ROWS][ROWS] = {};
    __syncthreads();
    bool finite = load_tile(q, first_query, T, q_row, K, scale, q_tile);
    finite = load_tile(dout, first_query, T, dout_row, Kv, 1, dout_tile) && finite;
    finite = __syncthreads_and(finite);
    add_scores(scores, q_tile, k_tile);
    add_scores(dweights, dout_tile, v_tile);
    weigh_backward(head, first_query, first_key, shift, inverse, sums, scores, dweights, dropped, dscores);
    __syncthreads();
    add_weighted(of_values, dropped, 1, SCORE_STEP, dout_tile, finite);
    add_weighted(of_keys, dscores, 1, SCORE_STEP, q_tile, finite);
  }
  store_rows(of_keys, dk + b * dk_batch + h * dk_head, first_key, S, dk_row, K);
  store_rows(of_values, dv + b * dv_batch + h * dv_head, first_key, S, dv_row, Kv);
}
