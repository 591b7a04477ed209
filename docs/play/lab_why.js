"use strict";
// The reason of an answer: the way from what was changed to the number that was asked about, with all numbers.
// A place is [name of an array, row, column]; `before` and `after` are all arrays of a bench.

const SUBSCRIPTS = [..."₀₁₂₃₄₅₆₇₈₉"];
const MOST_CELLS = 6; // that a step of a derivation lists
const SHOWN = 5e-5; // a smaller change is not seen in four digits

const is_same = (a, b) => Math.abs(a - b) < SHOWN;
const key_of = (place) => place.join(",");

/** The words for numbers and places of a bench that begins with a start of STARTS. */
class Names {
  constructor(bench, start) {
    Object.assign(this, { bench, start });
  }

  /** The name of a row or column: a word in quotes, or its number from 1. */
  label(axis, i) {
    const word = this.start.names?.[axis]?.[i];
    return word === undefined ? String(this.numbered(axis, i)) : `‘${word}’`;
  }

  numbered(axis, i) {
    return this.start.numbers?.[axis]?.[i] ?? i + 1;
  }

  /** As in the formulas of the book, as weights₂₃. */
  symbol([name, ...place]) {
    const { symbol = name, axes } = this.bench.arrays[name];
    return symbol + axes.map((axis, n) => (axis ? this.subscript(axis, place[n]) : "")).join("");
  }

  subscript(axis, i) {
    return [...String(this.numbered(axis, i))].map((digit) => SUBSCRIPTS[digit]).join("");
  }

  /** In words, as “the weight of key 3 for query 2”. */
  told([name, ...place]) {
    const { axes, told } = this.bench.arrays[name];
    return told(...axes.map((axis, n) => (axis ? this.label(axis, place[n]) : "")));
  }
}

// -- numbers and formulas ---------------------------------------------------------------------------------------------

/** A number that says what it is. @param {string} when "before" or "after" the change */
function told_number({ of, value }, arrays, when) {
  return element("data", { value: value(arrays), "data-of": of, "data-when": when }, brief(value(arrays)));
}

/** A formula with its numbers. @param {(string|object)[]} parts @returns {Node[]} */
function with_numbers(parts, arrays, when) {
  return parts.flatMap((part, n) => {
    if (typeof part === "string") return [part];
    const needs_parentheses = part.value(arrays) < 0 && n > 0 && !parts[n - 1].endsWith("(");
    const number = told_number(part, arrays, when);
    return needs_parentheses ? ["(", number, ")"] : [number];
  });
}

/** What a number was and is. @returns {Node[]} */
function then_and_now(place, before, after) {
  const number = at(...place);
  return [told_number(number, before, "before"), " → ", told_number(number, after, "after")];
}

/** A change with its sign. */
const signed = (change) => (change < 0 ? brief(change) : `+${brief(change)}`);

const list_of = (texts) => (texts.length > 1 ? `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}` : texts.join(""));

// -- what depends on what ---------------------------------------------------------------------------------------------

/** All places that a number is computed from, itself too. @returns {Map<string, Array>} key of a place -> place */
function sources_of(place, bench, ...contexts) {
  const found = new Map();
  const visit = ([name, i, j]) => {
    if (found.has(key_of([name, i, j]))) return;
    found.set(key_of([name, i, j]), [name, i, j]);
    const { parts, unseen } = bench.arrays[name];
    if (!parts) return; // an input
    for (const arrays of contexts) {
      for (const part of parts(i, j, arrays)) part.cells?.forEach(visit);
      unseen?.(i, arrays).forEach(visit);
    }
  };
  visit(place);
  return found;
}

/** All places of the inputs that differ. */
function changed_inputs(bench, before, after) {
  return Object.entries(bench.arrays).filter(([, array]) => !array.parts).flatMap(([name]) =>
    before[name].flatMap((row, i) => row.flatMap((value, j) => (value === after[name][i][j] ? [] : [[name, i, j]]))));
}

/** The inputs among places, in words: whole arrays, rows and columns by their names. */
function told_inputs(places, names, arrays) {
  const { bench } = names;
  const told = [];
  for (const name of Object.keys(bench.arrays).filter((each) => !bench.arrays[each].parts)) {
    const own = places.filter(([other]) => other === name);
    const [rows, columns] = [1, 2].map((axis) => [...new Set(own.map((place) => place[axis]))]);
    const [n, m] = [arrays[name].length, arrays[name][0].length];
    const { axes, symbol = name } = bench.arrays[name];
    if (!own.length) continue;
    if (own.length === n * m) told.push(symbol);
    else if (columns.length === m) told.push(...rows.map((i) => `${symbol}${names.subscript(axes[0], i)}`));
    else if (rows.length === n && n > 1) told.push(...columns.map((j) => `column ${names.label(axes[1], j)} of ${symbol}`));
    else told.push(...own.map((place) => names.symbol(place)));
  }
  return list_of(told);
}

// -- reasons ----------------------------------------------------------------------------------------------------------

const factors_of = (term, arrays) => term.reduce((all, number) => all * number.value(arrays), 1);

/** Why a sum of products has changed. */
function reason_of_sum([name, i, j], names, before, after) {
  const { terms, factor, is_mean } = names.bench.arrays[name];
  const [old_terms, new_terms] = [before, after].map((arrays) => terms(i, j, arrays));
  const changes = new_terms.map((term, n) => factors_of(term, after) - factors_of(old_terms[n], before));
  const changed = indices(changes.length).filter((n) => Math.abs(changes[n]) > 1e-12);
  const named = (n) => new_terms[n].map(({ cells: [place] }) => names.symbol(place)).join(" · ");
  const factor_changes = factor && factor.value(before) !== factor.value(after);
  if (!changed.length) {
    return factor_changes ? `All terms stay; the factor ${names.symbol(factor.cells[0])} changes.` : "No term of the sum changes.";
  }
  const listed = changed.slice(0, MOST_CELLS).map((n) => `${named(n)} (${signed(changes[n])})`);
  const more = changed.length > MOST_CELLS ? ` and ${changed.length - MOST_CELLS} more` : "";
  const total = changed.length > 1 ? `, together ${signed(total_of(changes))}` : "";
  let head = `Of ${changes.length} terms, ${changed.length} change`;
  if (changed.length === 1) head = `Of ${changes.length} terms, 1 changes`;
  if (changed.length === changes.length) head = changes.length === 1 ? "The one term changes" : "All terms change";
  let then = "";
  if (factor) then = `; the sum is multiplied by ${names.symbol(factor.cells[0])}`;
  if (is_mean) then = `; the sum is divided by ${changes.length}`;
  return `${head}: ${listed.join(", ")}${more}${total}${then}.`;
}

/** Why a weight has changed: each e is multiplied by exp(the change of its score), and the weights divided by their sum. */
function reason_of_softmax([name, i, j], names, before, after) {
  const { scores, kept } = names.bench.arrays[name];
  const [old_keys, new_keys] = [before, after].map((arrays) => kept(arrays, i));
  const named = (s) => names.symbol([scores, i, s]);
  if (old_keys.join() !== new_keys.join()) {
    const gone = old_keys.filter((s) => !new_keys.includes(s)).map(named);
    const come = new_keys.filter((s) => !old_keys.includes(s)).map(named);
    const said = [gone.length && `the sum loses the e of ${list_of(gone)}`, come.length && `the sum gains the e of ${list_of(come)}`];
    return `${said.filter(Boolean).join(", and ").replace(/^t/, "T")}; what is left still adds up to 1.`;
  }
  if (!new_keys.includes(j)) return "A masked key has the weight 0, whatever its score is.";
  const change = (s) => after[scores][i][s] - before[scores][i][s];
  const factors = new_keys.map((s) => Math.exp(change(s)));
  const mean = total_of(new_keys.map((s, n) => before[name][i][s] * factors[n]));
  const own = Math.exp(change(j));
  if (![...factors, mean].every((x) => x > 1e-4 && x < 1e4)) {
    return "The largest score takes nearly all of the weight: e grows so fast that the others hardly count.";
  }
  if (new_keys.every((s) => is_same(change(s), change(j)))) {
    return "All scores change by the same number, so every e is multiplied by the same factor, which cancels in e / Σ e.";
  }
  const listed = new_keys.map((s, n) => `${brief(factors[n])} for ${named(s)}`);
  let compared = own > mean ? "more than that: it gains" : "less than that: it loses";
  if (is_same(own, mean)) compared = "equal to that: it keeps its share";
  return `Each e is multiplied by exp(the change of its score): ${listed.join(", ")}. On average, by the old weights, the sum grows ` +
    `${brief(mean)} times. That of ${named(j)} is multiplied by ${brief(own)}, ` +
    `${compared}. (${brief(before[name][i][j])} · ${brief(own)} / ${brief(mean)} = ${brief(after[name][i][j])})`;
}

/** What the gradients before the change said about the loss. @returns {string} "" if a change has no gradient here */
function foretold(changed, names, before, after) {
  const gradient_of = Object.fromEntries(Object.entries(names.bench.gradients).map(([gradient, name]) => [name, gradient]));
  if (!changed.every(([name]) => gradient_of[name])) return "";
  const change = ([name, i, j]) => after[name][i][j] - before[name][i][j];
  const slope = ([name, i, j]) => before[gradient_of[name]][i][j];
  const expected = total_of(changed.map((place) => slope(place) * change(place)));
  const real = after.loss[0][0] - before.loss[0][0];
  const [first] = changed;
  const product_of = changed.length === 1
    ? `${names.symbol([gradient_of[first[0]], first[1], first[2]])} · change = ${brief(slope(first))} · ${signed(change(first))} = `
    : "Σ gradient · change = ";
  const judged = is_same(expected, real) ? "That is exact to four digits here."
    : "A gradient is the slope before the change, and the slope changes on the way: for a smaller change the two are closer.";
  return `The gradients could have told: ${product_of}${signed(expected)}. The loss really changes by ${signed(real)}. ${judged}`;
}

/**
 * Why a number has changed, or not.
 * @param {Array} watched the place that was asked about
 * @param {Names} names
 * @returns {Node[]}
 */
function why(watched, names, before, after) {
  const { bench } = names;
  const changed = changed_inputs(bench, before, after);
  const sources = sources_of(watched, bench, before, after);
  const reached = changed.filter((place) => sources.has(key_of(place)));
  if (!reached.length) {
    const inputs = [...sources.values()].filter(([name]) => !bench.arrays[name].parts);
    const text = `${names.symbol(watched)} is computed from ${told_inputs(inputs, names, after)}. ` +
      `${told_inputs(changed, names, after)} is not among them.`;
    return [element("p", {}, text)];
  }

  const moved = [...sources.values()].filter(([name, i, j]) =>
    bench.arrays[name].parts && brief(before[name][i][j]) !== brief(after[name][i][j]));
  if (!moved.length) return why_nothing_moves(watched, sources, reached, names, before, after);

  const [name] = watched;
  const steps = Object.keys(bench.arrays).filter((other) => other !== name).flatMap((other) => {
    const places = moved.filter(([of]) => of === other);
    return places.length ? [step_of(other, places, names, before, after)] : [];
  });
  const list = element("ol", {}, ...steps, worked_out(watched, names, before, after));
  const array = bench.arrays[name];
  const texts = [];
  if (array.terms) texts.push(reason_of_sum(watched, names, before, after));
  if (array.scores) texts.push(reason_of_softmax(watched, names, before, after));
  if (name === "loss") texts.push(foretold(changed, names, before, after));
  return [list, ...texts.filter(Boolean).map((text) => element("p", {}, text))];
}

/** Why a change comes to nothing: the first number that is computed from it, and the one that was asked about. */
function why_nothing_moves(watched, sources, reached, names, before, after) {
  const keys = new Set(reached.map(key_of));
  const uses_change = ([name, i, j]) => names.bench.arrays[name].parts?.(i, j, after).some((part) =>
    part.cells?.some((place) => keys.has(key_of(place))));
  const first = [...sources.values()].find(uses_change) ?? watched;
  const places = key_of(first) === key_of(watched) ? [watched] : [first, watched];
  const text = "There is a way to it, but no number on it changes in four digits: the change is multiplied by 0, or by next to nothing.";
  return [element("ol", {}, ...places.map((place) => worked_out(place, names, before, after))), element("p", {}, text)];
}

/** A number and its formula, with all numbers before and after the change. */
function worked_out(place, names, before, after) {
  const [name, i, j] = place;
  const { parts, text } = names.bench.arrays[name];
  const line = (when, arrays) => element("p", { class: "worked-out" }, `${when}: `,
    ...with_numbers(parts(i, j, arrays), arrays, when), " = ", element("b", {}, told_number(at(...place), arrays, when)));
  return element("li", {}, element("b", {}, names.symbol(place)), ` = ${text}`, line("before", before), line("after", after));
}

/** One array on the way, with its numbers that have changed: a table, if they stand in one row. */
function step_of(name, places, names, before, after) {
  const { symbol = name, text, axes } = names.bench.arrays[name];
  const head = [element("b", {}, symbol), ` = ${text}`];
  const [[, row]] = places;
  if (axes[1] && places.every(([, i]) => i === row)) {
    const which = axes[0] ? `, ${axes[0]} ${names.label(axes[0], row)}` : "";
    return element("li", {}, ...head, which, row_then_and_now(name, row, names, before, after));
  }
  const cells = places.slice(0, MOST_CELLS).map((place) =>
    element("span", {}, axes.some(Boolean) ? `${names.symbol(place)} ` : "", ...then_and_now(place, before, after)));
  const more = places.length > MOST_CELLS ? [`and ${places.length - MOST_CELLS} more`] : [];
  return element("li", {}, ...head, ": ", ...[...cells, ...more].flatMap((cell, n) => (n ? [", ", cell] : [cell])));
}

/** A row of an array before and after the change, with bars as long as its numbers are large. */
function row_then_and_now(name, i, names, before, after) {
  const peak = peak_of([before[name][i], after[name][i]]);
  const cell = (arrays, when, j) => {
    const value = arrays[name][i][j];
    const style = `--share: ${((100 * Math.abs(value)) / peak).toFixed(1)}%`;
    return element("td", { class: value < 0 ? "minus" : "", style }, told_number(at(name, i, j), arrays, when));
  };
  const [, axis] = names.bench.arrays[name].axes;
  const heads = before[name][i].map((_, j) => element("th", { scope: "col" }, names.label(axis, j).replace(/[‘’]/g, "")));
  const line = (when, arrays) => element("tr", {}, element("th", { scope: "row" }, when),
    ...arrays[name][i].map((_, j) => cell(arrays, when, j)));
  return element("table", { class: "then-and-now" }, element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, line("before", before), line("after", after)));
}
