"use strict";
// One weight of a head and its output, worked out number by number.

/** A row of numbers for people, each tinted by its sign and size. */
function row_of_numbers(name, numbers, last, peak) {
  const cells = numbers.map((value) => element("td", {
    class: `value ${value < 0 ? "minus" : ""}`, style: `--tint: ${((22 * Math.abs(value)) / peak).toFixed(1)}`,
  }, number(value, 2)));
  if (last !== undefined) cells.push(element("td", {}, last));
  return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
}

/** A table with one column for each number of a head. @param {[string, number[], string][]} rows name, numbers, what is last */
function table_of_numbers(label, rows, title) {
  const ends = rows[0][1].map((_, c) => element("th", { scope: "col" }, String(c + 1)));
  const head = element("tr", {}, element("td"), ...ends, ...(title ? [element("th", { scope: "col" }, title)] : []));
  const peak = (numbers) => Math.max(...numbers.map(Math.abs)) || 1;
  const all = peak(rows.flatMap(([, numbers]) => numbers));
  const body = rows.map(([name, numbers, last, own]) => row_of_numbers(name, numbers, last, own ? peak(numbers) : all));
  const table = element("table", { "aria-label": label }, element("thead", {}, head), element("tbody", {}, ...body));
  const box = scrolling(table);
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${label}, which scrolls sideways`);
  return box;
}

/**
 * The weight of one key for one query, and what the query gets from all keys.
 * @param {object} head {q, k, v, keep_mask, scores, weights, out} of attend, row and key, the names of all rows and columns
 * @param {(key: number) => void} choose takes another key
 */
function worked({ q, k, v, keep_mask, scores, weights, out, row, key, rows, cols }, choose) {
  const width = q[row].length;
  const list = element("select", { id: "key" }, ...cols.map((name, j) =>
    element("option", { value: j, selected: j === key }, `${name} ${number(weights[row][j], 3)}`)));
  list.addEventListener("change", () => choose(Number(list.value)));
  const summary = element("summary", {}, element("b", {}, "One weight, number by number"));
  const chosen = element("label", {}, `Query ‘${rows[row]}’, key `, list);
  const node = element("details", { class: "worked" }, summary, chosen);

  const products = q[row].map((value, c) => value * k[key][c]);
  const rounded = (x) => Number(x.toFixed(6)); // so that a calculator finds what stands in the next line
  const dot = rounded(products.reduce((sum, value) => sum + value, 0));
  const kept = cols.flatMap((_, j) => (keep_mask[row][j] ? [j] : []));
  const is_masked = !keep_mask[row][key];
  const score = rounded(scores[row][key]);
  const total = kept.reduce((sum, j) => sum + Math.exp(rounded(scores[row][j])), 0);
  const line = (...text) => node.append(element("p", {}, ...text));

  line(element("b", {}, "1. "), `The query q and the key k have ${width} numbers each. Multiply number by number, and add: ` +
    `q · k = ${number(dot, 6)}. In the table all are rounded.`);
  node.append(table_of_numbers("query, key and their products", [
    ["q", q[row], "", true], ["k", k[key], "", true], ["q × k", products, number(dot, 3), true],
  ], "sum"));
  line(element("b", {}, "2. "), `Divide by √K = √${width}: the score is ${number(dot, 6)} / ${number(Math.sqrt(width), 3)} = ` +
    `${number(score, 6)}.`);
  const all = kept.length === 1 ? "the one key" : `all ${kept.length} keys`;
  const long = (x) => (x >= 1e-3 && x < 1e9 ? x.toLocaleString("en", { maximumSignificantDigits: 8 })
    : x.toExponential(7).replace("-", "−"));
  line(element("b", {}, "3. "), ...(is_masked ? ["This key is masked: softmax leaves it out, and its weight is 0."] : [
    `Softmax: exp(${number(score, 6)}) = ${long(Math.exp(score))}, and for ${all}${kept.length < cols.length
      ? " that may be read" : ""}, added up, ${long(total)}. The weight is ${long(Math.exp(score))} / ${long(total)} = `,
    element("b", { id: "worked-weight" }, number(weights[row][key])), "."]));
  const first = largest_first(weights[row]).filter((j) => weights[row][j] >= 0.005);
  const shown = [key, ...first.filter((j) => j !== key)].slice(0, 3).filter((j) => keep_mask[row][j]);
  const others = kept.filter((j) => !shown.includes(j));
  const part = (j) => v[j].map((value) => weights[row][j] * value);
  const sum = (keys) => v[0].map((_, c) => keys.reduce((total, j) => total + weights[row][j] * v[j][c], 0));
  line(element("b", {}, "4. "), "The output of the head for this query: weight · v, for each key its own, added up. " +
    "The outputs of all heads, side by side, go on to the output matrix of this attention.");
  node.append(table_of_numbers("weighted values and their sum", [
    ...shown.map((j) => [`${number(weights[row][j], 3)} · ${cols[j]}`, part(j)]),
    ...(others.length ? [[others.length === 1 ? "1 other key" : `${others.length} other keys`, sum(others)]] : []),
    ["sum: out", out[row]],
  ]));
  return node;
}
