"use strict";
// What the lab computes: three benches, each with its inputs and, for every computed array, the formula of each number.
// All arrays are matrices: a vector is a matrix of one row, a single number has one row and one column.

const EPS = 1e-5; // of layer normalisation
const STEP = 1e-5; // h of the finite difference
const LARGEST_EXPONENT = 9; // of e in a formula: a larger one is shown minus the largest score of its row
const MOST_TERMS = 5; // of a sum, as a formula shows it: of more, those that are 0 are left out

const indices = (n) => Array.from({ length: n }, (_, i) => i);
const total_of = (numbers) => numbers.reduce((sum, value) => sum + value, 0);
const copy_of = (x) => x.map((row) => [...row]);

// -- formulas: lists of texts and numbers -----------------------------------------------------------------------------

/** A number of an array, in a formula. `of` names it as NumPy would. */
function at(name, i = 0, j = 0) {
  return { of: `${name}[${i},${j}]`, cells: [[name, i, j]], value: (arrays) => arrays[name][i][j] };
}

/** exp(number of an array − shift) in a formula. */
function exp_at(name, i, j, shift) {
  const value = (arrays) => Math.exp(arrays[name][i][j] - shift);
  return { of: `exp(${name}[${i},${j}]-(${shift}))`, cells: [[name, i, j]], value };
}

/** The formula of a sum of products. @param {object[][]} terms each a list of factors */
function sum_of(terms) {
  const product_of = (factors) => factors.flatMap((number, n) => (n ? [" · ", number] : [number]));
  return terms.flatMap((factors, i) => (i ? [" + ", ...product_of(factors)] : product_of(factors)));
}

/**
 * An array whose numbers are sums of products.
 * @param {(i: number, j: number, arrays: object) => object[][]} terms of a number
 * @param {{factor?: object, is_mean?: boolean}} [options] a number by which the sum is multiplied; whether it is divided by
 * the number of terms
 */
function summed(array, terms, { factor, is_mean } = {}) {
  const parts = (i, j, arrays) => {
    const all = terms(i, j, arrays);
    const is_zero = (term) => term.some((number) => number.value(arrays) === 0);
    const kept = all.length > MOST_TERMS ? all.filter((term) => !is_zero(term)) : all;
    const sum = kept.length ? sum_of(kept) : ["0"];
    if (factor) return [factor, " · (", ...sum, ")"];
    return is_mean ? ["(", ...sum, `) / ${all.length}`] : sum;
  };
  return { ...array, terms, factor, is_mean, parts };
}

/**
 * An array whose rows are the softmax of those of another.
 * @param {(arrays, i) => number[]} kept the keys that may be read
 * @param {(i, arrays) => Array[]} [unseen] places that are not in the formula and decide which keys are
 */
function softmax_of(array, scores, kept, unseen) {
  const parts = (i, j, arrays) => {
    const keys = kept(arrays, i);
    if (!keys.includes(j)) return ["0, as this key is masked"];
    const peak = Math.max(...keys.map((s) => arrays[scores][i][s]));
    const shift = Math.abs(peak) > LARGEST_EXPONENT ? peak : 0;
    const sum = sum_of(keys.map((s) => [exp_at(scores, i, s, shift)]));
    const note = shift ? [`, where e = exp(score − ${brief(shift)}): what is subtracted everywhere cancels`] : [];
    return [exp_at(scores, i, j, shift), " / (", ...sum, ")", ...note];
  };
  return { ...array, scores, kept, unseen, parts };
}

/** An array that is the gradient of a softmax. */
function softmax_gradient(array, weights, dweights) {
  const parts = (i, j, arrays) => {
    const terms = indices(arrays[weights][i].length).map((s) => [at(dweights, i, s), at(weights, i, s)]);
    return [at(weights, i, j), " · (", at(dweights, i, j), " − (", ...sum_of(terms), "))"];
  };
  return { ...array, parts };
}

/** A number without zeros at its end. */
function brief(value) {
  const size = Math.abs(value);
  if (size > 0 && (size < 5e-5 || size >= 1e7)) return with_exponent(value, 3);
  return String(Number(value.toFixed(4))).replace("-", "−");
}

const RAISED = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].entries()) };
function with_exponent(value, n_digits = 1) {
  const [digits, exponent] = value.toExponential(n_digits).split("e");
  return `${digits.replace("-", "−")} · 10${[...exponent].map((sign) => RAISED[sign] ?? "").join("")}`;
}

// -- the benches ------------------------------------------------------------------------------------------------------

/** Σ dout · out. @param {Matrix} out @param {Matrix} dout @returns {number} */
function loss_of(out, dout) {
  return total_of(out.map((row, t) => total_of(row.map((value, j) => value * dout[t][j]))));
}

/** The sum over all entries of two arrays, as terms of a formula. */
const dot = (a, b) => (i, j, arrays) =>
  arrays[a].flatMap((row, t) => row.map((_, n) => [at(a, t, n), at(b, t, n)]));

function attention_of({ q, k, v, dout, keep_mask, scale: [[scale]] }) {
  const forward = attention(q, k, v, keep_mask, scale);
  return {
    ...forward, loss: [[loss_of(forward.out, dout)]],
    ...attention_backward(dout, q, k, v, forward.weights, scale),
  };
}

/** The loss, if the scores are these. */
function loss_of_scores(scores, { v, dout, keep_mask }) {
  const masked = scores.map((row, t) => row.map((score, s) => (keep_mask[t][s] ? score : -Infinity)));
  return loss_of(product(masked.map(softmax), v), dout);
}

function softmax_bench({ x, dy }) {
  const y = softmax(x[0]);
  return {
    e: [x[0].map(Math.exp)], y: [y], loss: [[loss_of([y], dy)]],
    mean: [[total_of(y.map((value, i) => value * dy[0][i]))]],
    dx: [softmax_backward(dy[0], y)],
  };
}

function layer_norm_bench({ x: [x], gain: [gain], bias: [bias], dy: [dy] }) {
  const mean_of_numbers = (numbers) => total_of(numbers) / numbers.length;
  const mean = mean_of_numbers(x);
  const variance = mean_of_numbers(x.map((value) => (value - mean) ** 2));
  const rstd = 1 / Math.sqrt(variance + EPS);
  const x_hat = x.map((value) => (value - mean) * rstd);
  const y = x_hat.map((value, j) => value * gain[j] + bias[j]);
  const dx_hat = dy.map((value, j) => value * gain[j]);
  const shift = mean_of_numbers(dx_hat);
  const along = mean_of_numbers(dx_hat.map((value, j) => value * x_hat[j]));
  return {
    mean: [[mean]], variance: [[variance]], rstd: [[rstd]], x_hat: [x_hat], y: [y], loss: [[loss_of([y], [dy])]],
    dx_hat: [dx_hat], shift: [[shift]], along: [[along]],
    dx: [dx_hat.map((value, j) => rstd * (value - shift - x_hat[j] * along))],
    dgain: [dy.map((value, j) => value * x_hat[j])], dbias: [[...dy]],
  };
}

const row_of = (name) => (i, j, arrays) => arrays[name][0].map((_, n) => [at(name, 0, n)]);

/**
 * Each bench: the arrays in the order in which they are computed, with the part of the page in which they stand, the axes of
 * their rows and columns, their name in a formula if it is not their own, and what one of their numbers is called, given
 * the names of its row and its column. `gradients` says of what each gradient is one.
 */
const BENCHES = {
  attention: {
    title: "Attention",
    text: "One head: scores = scale · q kᵀ, weights = softmax(scores), out = weights v. The loss is the sum of dout · out, so dout " +
      "is its gradient with respect to out.",
    largest: 1000, // input, so that nothing overflows
    compute: attention_of,
    gradients: { dv: "v", dweights: "weights", dscores: "scores", dq: "q", dk: "k" },
    loss_from: { weights: (weights, { v, dout }) => loss_of(product(weights, v), dout), scores: loss_of_scores },
    arrays: {
      scale: { part: "controls", axes: [null, null], told: () => "the scale" },
      q: { part: "inputs", axes: ["query", "component"], text: "queries", told: (row, col) => `component ${col} of query ${row}` },
      k: { part: "inputs", axes: ["key", "component"], text: "keys", told: (row, col) => `component ${col} of key ${row}` },
      v: { part: "inputs", axes: ["key", "entry"], text: "values", told: (row, col) => `component ${col} of value ${row}` },
      dout: { part: "inputs", axes: ["query", "entry"], text: "gradient of the loss with respect to out",
        told: (row, col) => `component ${col} of the gradient of output ${row}` },
      keep_mask: { part: "inputs", axes: ["query", "key"], symbol: "mask", is_mask: true,
        text: "checked: the query may read the key", told: (row, col) => `whether query ${row} may read key ${col}` },
      scores: summed({ part: "forward", axes: ["query", "key"], text: "scale · q kᵀ", is_masked: ({ keep_mask }, t, s) => !keep_mask[t][s],
        told: (row, col) => `the score of query ${row} and key ${col}` },
      (t, s, { q }) => q[t].map((_, c) => [at("q", t, c), at("k", s, c)]), { factor: at("scale") }),
      weights: softmax_of({ part: "forward", axes: ["query", "key"], text: "softmax of each row: e / Σ e, e = exp(score)",
        told: (row, col) => `the weight of key ${col} for query ${row}` },
      "scores", ({ keep_mask }, t) => indices(keep_mask[t].length).filter((s) => keep_mask[t][s]),
      (t, { keep_mask }) => keep_mask[t].map((_, s) => ["keep_mask", t, s])),
      out: summed({ part: "forward", axes: ["query", "entry"], text: "weights v",
        told: (row, col) => `component ${col} of output ${row}` },
      (t, j, { v }) => v.map((_, s) => [at("weights", t, s), at("v", s, j)])),
      loss: summed({ part: "forward", axes: [null, null], text: "Σ dout · out", told: () => "the loss" }, dot("dout", "out")),
      dv: summed({ part: "backward", axes: ["key", "entry"], text: "weightsᵀ dout",
        told: (row, col) => `the gradient of component ${col} of value ${row}` },
      (s, j, { dout }) => dout.map((_, t) => [at("weights", t, s), at("dout", t, j)])),
      dweights: summed({ part: "backward", axes: ["query", "key"], text: "dout vᵀ",
        told: (row, col) => `the gradient of the weight of key ${col} for query ${row}` },
      (t, s, { v }) => v[s].map((_, j) => [at("dout", t, j), at("v", s, j)])),
      dscores: softmax_gradient({ part: "backward", axes: ["query", "key"], text: "weights · (dweights − Σ dweights · weights)",
        told: (row, col) => `the gradient of the score of query ${row} and key ${col}` }, "weights", "dweights"),
      dq: summed({ part: "backward", axes: ["query", "component"], text: "scale · dscores k",
        told: (row, col) => `the gradient of component ${col} of query ${row}` },
      (t, c, { k }) => k.map((_, s) => [at("dscores", t, s), at("k", s, c)]), { factor: at("scale") }),
      dk: summed({ part: "backward", axes: ["key", "component"], text: "scale · dscoresᵀ q",
        told: (row, col) => `the gradient of component ${col} of key ${row}` },
      (s, c, { q }) => q.map((_, t) => [at("dscores", t, s), at("q", t, c)]), { factor: at("scale") }),
    },
  },
  softmax: {
    title: "Softmax",
    text: "One row of scores x becomes weights y = e / Σ e, with e = exp(x). The loss is the sum of dy · y, so dy is its " +
      "gradient with respect to y.",
    largest: 100,
    compute: softmax_bench,
    gradients: { dx: "x" },
    loss_from: {},
    arrays: {
      x: { part: "inputs", axes: [null, "score"], text: "scores", told: (_, col) => `score ${col}` },
      dy: { part: "inputs", axes: [null, "score"], text: "gradient of y", told: (_, col) => `the gradient of weight ${col}` },
      e: { part: "forward", axes: [null, "score"], text: "exp(x)", told: (_, col) => `exp of score ${col}`,
        parts: (i, j) => ["exp(", at("x", i, j), ")"] },
      y: {
        ...softmax_of({ part: "forward", axes: [null, "score"], text: "e / Σ e", told: (_, col) => `weight ${col}` },
          "x", ({ x }) => indices(x[0].length)),
        parts: (i, j, { e }) => [at("e", 0, j), " / (", ...sum_of(e[0].map((_, n) => [at("e", 0, n)])), ")"],
      },
      loss: summed({ part: "forward", axes: [null, null], text: "Σ dy · y", told: () => "the loss" }, dot("dy", "y")),
      mean: summed({ part: "backward", axes: [null, null], symbol: "mean", text: "Σ dy · y", told: () => "the weighted mean of dy" },
        dot("dy", "y")),
      dx: { part: "backward", axes: [null, "score"], text: "y · (dy − mean)", told: (_, col) => `the gradient of score ${col}`,
        parts: (i, j) => [at("y", i, j), " · (", at("dy", i, j), " − ", at("mean"), ")"] },
    },
  },
  layer_norm: {
    title: "Layer norm",
    text: "A row x is shifted to mean 0 and scaled to variance 1, which gives x̂; y = x̂ · gain + bias. The loss is the sum of " +
      "dy · y, so dy is its gradient with respect to y.",
    largest: 1000,
    compute: layer_norm_bench,
    gradients: { dx: "x", dgain: "gain", dbias: "bias" },
    loss_from: {},
    arrays: {
      x: { part: "inputs", axes: [null, "entry"], text: "the row", told: (_, col) => `entry ${col} of x` },
      gain: { part: "inputs", axes: [null, "entry"], text: "learned", told: (_, col) => `gain ${col}` },
      bias: { part: "inputs", axes: [null, "entry"], text: "learned", told: (_, col) => `bias ${col}` },
      dy: { part: "inputs", axes: [null, "entry"], text: "gradient of y", told: (_, col) => `entry ${col} of the gradient of y` },
      mean: summed({ part: "forward", axes: [null, null], text: "Σ x / D", told: () => "the mean of x" }, row_of("x"), { is_mean: true }),
      variance: { part: "forward", axes: [null, null], text: "Σ (x − mean)² / D", told: () => "the variance of x",
        parts: (i, j, { x }) => ["(", ...x[0].flatMap((_, n) =>
          [n ? " + (" : "(", at("x", 0, n), " − ", at("mean"), ")²"]), `) / ${x[0].length}`] },
      rstd: { part: "forward", axes: [null, null], text: "1 / √(variance + 10⁻⁵)", told: () => "1 / the standard deviation",
        parts: () => ["1 / √(", at("variance"), " + 10⁻⁵)"] },
      x_hat: { part: "forward", axes: [null, "entry"], symbol: "x̂", text: "(x − mean) · rstd", told: (_, col) => `entry ${col} of x̂`,
        parts: (i, j) => ["(", at("x", 0, j), " − ", at("mean"), ") · ", at("rstd")] },
      y: { part: "forward", axes: [null, "entry"], text: "x̂ · gain + bias", told: (_, col) => `entry ${col} of y`,
        parts: (i, j) => [at("x_hat", 0, j), " · ", at("gain", 0, j), " + ", at("bias", 0, j)] },
      loss: summed({ part: "forward", axes: [null, null], text: "Σ dy · y", told: () => "the loss" }, dot("dy", "y")),
      dx_hat: { part: "backward", axes: [null, "entry"], symbol: "dx̂", text: "dy · gain",
        told: (_, col) => `the gradient of entry ${col} of x̂`, parts: (i, j) => [at("dy", 0, j), " · ", at("gain", 0, j)] },
      shift: summed({ part: "backward", axes: [null, null], symbol: "mean(dx̂)", text: "Σ dx̂ / D", told: () => "the mean of dx̂" },
        row_of("dx_hat"), { is_mean: true }),
      along: summed({ part: "backward", axes: [null, null], symbol: "mean(dx̂ · x̂)", text: "Σ dx̂ · x̂ / D",
        told: () => "the mean of dx̂ · x̂" }, dot("dx_hat", "x_hat"), { is_mean: true }),
      dx: { part: "backward", axes: [null, "entry"], text: "rstd · (dx̂ − mean(dx̂) − x̂ · mean(dx̂ · x̂))",
        told: (_, col) => `the gradient of entry ${col} of x`,
        parts: (i, j) => [at("rstd"), " · (", at("dx_hat", 0, j), " − ", at("shift"), " − ", at("x_hat", 0, j), " · ", at("along"), ")"] },
      dgain: { part: "backward", axes: [null, "entry"], text: "dy · x̂", told: (_, col) => `the gradient of gain ${col}`,
        parts: (i, j) => [at("dy", 0, j), " · ", at("x_hat", 0, j)] },
      dbias: { part: "backward", axes: [null, "entry"], text: "dy", told: (_, col) => `the gradient of bias ${col}`,
        parts: (i, j) => [at("dy", 0, j)] },
    },
  },
};

/** All arrays of a bench, inputs too. @param {object} inputs */
function compute(bench, inputs) {
  return { ...inputs, ...bench.compute(inputs) };
}

/** The change of loss() for each number of x, in both directions. @param {Matrix} x, changed and restored */
function finite_difference(x, loss) {
  return x.map((row) => row.map((value, j) => {
    row[j] = value + STEP;
    const above = loss();
    row[j] = value - STEP;
    const below = loss();
    row[j] = value;
    return (above - below) / (2 * STEP);
  }));
}

/** The finite difference of each gradient of a bench. @returns {Object<string, Matrix>} */
function differences_of(bench, inputs, arrays) {
  const difference = (name) => {
    const x = copy_of(arrays[name]);
    if (name in inputs) return finite_difference(x, () => bench.compute({ ...inputs, [name]: x }).loss[0][0]);
    return finite_difference(x, () => bench.loss_from[name](x, arrays));
  };
  return Object.fromEntries(Object.entries(bench.gradients).map(([gradient, name]) => [gradient, difference(name)]));
}
