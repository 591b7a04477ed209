"use strict";
// The page lab.html: one head with 4 queries and 4 keys of width 3, whose numbers and gradients are all shown.

const N_QUERIES = 4, N_KEYS = 4, WIDTH = 3, STEP = 1e-5; // T, S, K = Kv, and h of the finite difference
const LARGEST = 1000; // of an input, so that nothing overflows
const RAISED = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].entries()) };
const SIZES = { q: N_QUERIES, k: N_KEYS, "": WIDTH }; // of an axis, by the letter before its numbers
const DEFAULT_SCALE = 1 / Math.sqrt(WIDTH);
const MIXED = {
  q: [[1, 0, 0.5], [0, 1, -0.5], [-1, 0.5, 1], [0.5, 0.5, 0]],
  k: [[1, 0.5, 0], [0, 1, 0.5], [-0.5, 0, 1], [0.5, -1, 0.5]],
  v: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
  dout: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, -0.5, 1]],
  keep_mask: no_mask(N_QUERIES, N_KEYS),
  scale: DEFAULT_SCALE,
};
const LAB_EXAMPLES = { // what differs from MIXED
  "mixed numbers": {},
  "a dictionary: each query equals one key": {
    q: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]],
    k: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]],
    scale: 8,
  },
  "equal scores: the mean of the values": { q: matrix(N_QUERIES, WIDTH, () => 0) },
  "large scores: the gradients vanish": { scale: 20 },
  "a query that may attend to no key": { keep_mask: matrix(N_QUERIES, N_KEYS, (t) => t !== 2) },
};
const lab = {}; // q, k, v, dout, keep_mask, scale

/** Σ dout · out. @param {Matrix} out @param {Matrix} dout @returns {number} */
function loss_of(out, dout) {
  return out.reduce((sum, row, t) => sum + row.reduce((part, value, j) => part + value * dout[t][j], 0), 0);
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

/**
 * All that the lab shows.
 * @param {{q: Matrix, k: Matrix, v: Matrix, dout: Matrix, keep_mask: boolean[][], scale: number}} inputs
 */
function compute(inputs) {
  const { dout, keep_mask, scale } = inputs;
  const [q, k, v] = [inputs.q, inputs.k, inputs.v].map((x) => x.map((row) => [...row]));
  const forward = attention(q, k, v, keep_mask, scale);
  const grads = attention_backward(dout, q, k, v, forward.weights, scale);

  const loss = () => loss_of(attention(q, k, v, keep_mask, scale).out, dout);
  const [scores, weights] = [forward.scores, forward.weights].map((x) => x.map((row) => [...row]));
  const loss_of_weights = () => loss_of(product(weights, v), dout);
  const masked = (row, t) => row.map((score, s) => (keep_mask[t][s] ? score : -Infinity));
  const loss_of_scores = () => loss_of(product(scores.map((row, t) => softmax(masked(row, t))), v), dout);
  const differences = {
    dweights: finite_difference(weights, loss_of_weights),
    dscores: finite_difference(scores, loss_of_scores),
    dq: finite_difference(q, loss),
    dk: finite_difference(k, loss),
    dv: finite_difference(v, loss),
  };
  return { ...forward, loss: loss(), grads, differences };
}

// -- tables -----------------------------------------------------------------------------------------------------------

const fields = {}; // of q, k, v, dout and keep_mask: the inputs of each
const outputs = {}; // of all computed matrices: the cells of each

/** A titled table with a cell for each number. @param {(i: number, j: number) => Node} cell */
function lab_table(title, text, row, col, cell) {
  const [n, m] = [SIZES[row], SIZES[col]];
  const name = (letter, i) => (letter ? `${letter}${i}` : String(i));
  const cols = Array.from({ length: m }, (_, j) => element("th", { scope: "col" }, name(col, j)));
  const head = element("tr", {}, element("td"), ...cols);
  const body = Array.from({ length: n }, (_, i) => element("tr", {}, element("th", { scope: "row" }, name(row, i)),
    ...Array.from({ length: m }, (_, j) => cell(i, j))));
  const caption = element("caption", {}, element("b", {}, title), ` ${text} (${n}, ${m})`);
  return element("div", {}, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...body)));
}

function input_table(name, text, row) {
  fields[name] = matrix(SIZES[row], WIDTH, (i, j) => {
    const label = `${name}, row ${i}, column ${j}`;
    const field = element("input", { class: "number", type: "number", step: "0.1", "aria-label": label });
    return number_field(field, () => lab[name][i][j], (value) => {
      lab[name][i][j] = value;
    });
  });
  return lab_table(name, text, row, "", (i, j) => element("td", {}, fields[name][i][j]));
}

function mask_table() {
  fields.keep_mask = matrix(N_QUERIES, N_KEYS, (t, s) => {
    const box = element("input", { type: "checkbox", "aria-label": `query ${t} may attend to key ${s}` });
    box.addEventListener("change", () => {
      lab.keep_mask[t][s] = box.checked;
      show_lab();
    });
    return box;
  });
  const cell = (t, s) => element("td", {}, fields.keep_mask[t][s]);
  return lab_table("mask", "checked: the query may attend to the key", "q", "k", cell);
}

function output_table(name, text, row, col) {
  outputs[name] = matrix(SIZES[row], SIZES[col], () => element("td", { class: "value" }));
  return lab_table(name, text, row, col, (i, j) => outputs[name][i][j]);
}

/** Let the number of a field be typed, stepped with the arrow keys, or dragged sideways. */
function number_field(field, get, set) {
  [field.min, field.max] = [-LARGEST, LARGEST];
  const change = () => {
    const valid = field.value !== "" && Math.abs(Number(field.value)) <= LARGEST;
    field.setAttribute("aria-invalid", String(!valid));
    if (!valid) return;
    set(Number(short(Number(field.value)))); // what will be shown
    show_lab(field);
  };
  field.addEventListener("input", change);
  field.addEventListener("wheel", () => field.blur(), { passive: true }); // scroll the page and leave the number alone
  field.addEventListener("blur", () => {
    field.value = short(get());
    field.setAttribute("aria-invalid", "false");
  });
  let from = null; // where a drag began
  field.addEventListener("pointerdown", (event) => {
    if (event.button) return; // another than the main one
    from = { x: event.clientX, value: get(), moves: false };
    field.setPointerCapture(event.pointerId);
  });
  field.addEventListener("pointermove", (event) => {
    if (!from || (!from.moves && Math.abs(event.clientX - from.x) < 5)) return;
    from.moves = true;
    const value = from.value + Math.round((event.clientX - from.x) / 5) * 0.1;
    field.value = short(Math.min(Math.max(value, -LARGEST), LARGEST));
    change();
  });
  for (const name of ["pointerup", "pointercancel"]) {
    field.addEventListener(name, () => {
      from = null;
    });
  }
  return field;
}

/** A number without the digits that binary fractions add. */
function short(value) {
  return String(Number(value.toFixed(6)));
}

/** A number that fits into a cell: a large one has fewer digits. */
function fitting(value) {
  return number(value, Math.abs(value) < 100 ? 4 : 2);
}

/** Fill the cells of a matrix. @param {Matrix} [differences] shown below, for gradients */
function fill(name, values, differences) {
  const peak = peak_of(values);
  values.forEach((row, i) => row.forEach((value, j) => {
    const cell = outputs[name][i][j];
    const masked = name === "scores" && !lab.keep_mask[i][j];
    cell.dataset.value = value;
    cell.classList.toggle("minus", value < 0);
    cell.style.setProperty("--tint", masked ? 0 : ((Math.abs(value) / peak) * 22).toFixed(1));
    cell.replaceChildren(masked ? "masked" : fitting(value));
    if (differences) {
      cell.dataset.difference = differences[i][j];
      cell.append(element("small", {}, fitting(differences[i][j])));
    }
  }));
}

/** Compute and show everything. @param {Element} [typing] the field in which someone types, which is left alone */
function show_lab(typing) {
  for (const name of ["q", "k", "v", "dout"]) {
    fields[name].forEach((row, i) => row.forEach((field, j) => {
      if (field !== typing) field.value = short(lab[name][i][j]);
    }));
  }
  fields.keep_mask.forEach((row, t) => row.forEach((box, s) => {
    box.checked = lab.keep_mask[t][s];
  }));
  if ($("scale") !== typing) $("scale").value = short(lab.scale);
  if ($("scale-range") !== typing) $("scale-range").value = lab.scale;

  const computed = compute(lab);
  for (const name of ["scores", "weights", "out"]) fill(name, computed[name]);
  let largest = 0;
  for (const [name, values] of Object.entries(computed.grads)) {
    fill(name, values, computed.differences[name]);
    values.forEach((row, i) => row.forEach((value, j) => {
      largest = Math.max(largest, Math.abs(value - computed.differences[name][i][j]));
    }));
  }
  $("loss").textContent = number(computed.loss, 6);
  $("loss").dataset.value = computed.loss;
  const [digits, exponent] = largest.toExponential(1).split("e");
  $("difference").textContent = `${digits} · 10${[...exponent].map((sign) => RAISED[sign] ?? "").join("")}`;
}

function start_from(name) {
  const { scale, ...arrays } = { ...MIXED, ...LAB_EXAMPLES[name] };
  Object.assign(lab, { scale });
  for (const [key, x] of Object.entries(arrays)) lab[key] = x.map((row) => [...row]);
  show_lab();
}

$("inputs").append(
  input_table("q", "queries", "q"),
  input_table("k", "keys", "k"),
  input_table("v", "values", "k"),
  input_table("dout", "gradient of the loss with respect to out", "q"),
  mask_table(),
);
$("forward").append(
  output_table("scores", "scale · q kᵀ", "q", "k"),
  output_table("weights", "softmax of each row of scores, P", "q", "k"),
  output_table("out", "P v", "q", ""),
);
$("backward").append(
  output_table("dv", "Pᵀ dout", "k", ""),
  output_table("dweights", "dP = dout vᵀ", "q", "k"),
  output_table("dscores", "P (dP − Σₛ dP P)", "q", "k"),
  output_table("dq", "scale · dscores k", "q", ""),
  output_table("dk", "scale · dscoresᵀ q", "k", ""),
);
$("lab-examples").append(...Object.keys(LAB_EXAMPLES).map((name) => element("option", {}, name)));
$("lab-examples").addEventListener("change", (event) => start_from(event.target.value));
number_field($("scale"), () => lab.scale, (value) => {
  lab.scale = value;
});
$("scale-range").addEventListener("input", (event) => {
  lab.scale = Number(event.target.value);
  show_lab(event.target);
});
$("default-scale").addEventListener("click", () => {
  lab.scale = DEFAULT_SCALE;
  show_lab();
});
for (const [id, mask] of [["causal", causal_mask], ["all-keys", no_mask]]) {
  $(id).addEventListener("click", () => {
    lab.keep_mask = mask(N_QUERIES, N_KEYS);
    show_lab();
  });
}
$("lab-examples").selectedIndex = 0;
start_from("mixed numbers");
