"use strict";
// The page lab.html: benches whose numbers are changed. What a change does to a number is asked, then shown and explained.

const DEFAULT_WATCH = { attention: ["weights", 0, 0], softmax: ["y", 0, 0], layer_norm: ["y", 0, 0] };
const DIRECTIONS = { "-1": "falls", 0: "stays the same", 1: "rises" };

const lab = { // what is shown
  bench: "attention", start: "mixed",
  inputs: {}, // as they stand in the fields
  settled: {}, // the inputs before the change
  before: {}, shown: {}, // all arrays, before the change and as they are shown
  watched: DEFAULT_WATCH.attention, is_pinned: false, // the place that is asked about; whether the reader has chosen it
  is_asking: true, is_pending: false, // whether a prediction is waited for
  question: undefined, // of QUESTIONS, if the change is its change
  answer: undefined, // {direction, estimate}
  touched: undefined, // the field that was changed last
  n_asked: 0, n_right: 0,
  embedded: undefined, // the question, if the page is a part of another one
  shows: undefined, // the names of the arrays that are shown, if not all are
};

const bench = () => BENCHES[lab.bench];
const names = () => new Names(bench(), start_named(lab.bench, lab.start));
const start_named = (of, id) => STARTS[of].find((start) => start.id === id);
const question_named = (id) => Object.values(QUESTIONS).flat().find((question) => question.id === id);
const bench_of = (question) => Object.keys(QUESTIONS).find((name) => QUESTIONS[name].includes(question));
const copy_of_all = (inputs) => Object.fromEntries(Object.entries(inputs).map(([name, x]) => [name, copy_of(x)]));
const changes = () => changed_inputs(bench(), lab.settled, lab.inputs);
const direction_of = (before, after) => (is_same(before, after) ? 0 : Math.sign(after - before));

/** The inputs of a start. */
function inputs_of(name, id) {
  const { id: _, title, names: words, numbers, scale, ...arrays } = start_named(name, id);
  if (name !== "attention") return copy_of_all(arrays);
  const { q, k } = arrays;
  return copy_of_all({
    scale: [[scale ?? 1 / Math.sqrt(k[0].length)]], keep_mask: no_mask(q.length, k.length), ...arrays,
  });
}

// -- what changes -----------------------------------------------------------------------------------------------------

/** From here on, what changes is compared with the numbers as they are. */
function settle() {
  lab.settled = copy_of_all(lab.inputs);
  lab.before = lab.shown = compute(bench(), lab.settled);
  Object.assign(lab, { question: undefined, answer: undefined, is_pending: false });
}

/** Change inputs. @param {Array[]} values [name, row, column, value] of each @param {Element} field by which they are changed */
function change(values, field) {
  const goes_on = lab.is_asking ? lab.is_pending : lab.touched === field;
  if (!goes_on) settle();
  lab.touched = field;
  lab.question = undefined;
  for (const [name, i, j, value] of values) lab.inputs[name][i][j] = value;
  if (!lab.is_pinned && values.length === 1) follow(values[0]);
  update(field);
}

/** Ask about the number in the row or column of the one that is changed. */
function follow([name, ...place]) {
  const axes = bench().arrays[name].axes;
  const [watched, ...at_place] = lab.watched;
  const followed = bench().arrays[watched].axes.map((axis, n) =>
    (axis && axes.includes(axis) ? place[axes.indexOf(axis)] : at_place[n]));
  lab.watched = [watched, ...followed];
}

/** Ask, or show what has changed. @param {Element} [field] in which someone types, which is left alone */
function update(field) {
  lab.answer = undefined;
  lab.is_pending = lab.is_asking && changes().length > 0;
  lab.shown = lab.is_pending ? lab.before : compute(bench(), lab.inputs);
  show(field);
}

/** Take a prediction, and show what happens. @param {number} direction -1, 0 or 1 */
function answer(direction) {
  const text = $("estimate").value.trim().replace("−", "-").replace(",", ".");
  const estimate = text !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined;
  lab.answer = { direction, estimate };
  lab.is_pending = false;
  lab.shown = compute(bench(), lab.inputs);
  lab.n_asked += 1;
  if (is_right()) lab.n_right += 1;
  show();
  $("verdict").focus({ preventScroll: true });
}

/** The number that is asked about, before and after. */
function watched_values() {
  const [name, i, j] = lab.watched;
  return [lab.before[name][i][j], lab.shown[name][i][j]];
}

/** Begin with the numbers of a start. @param {string[]} [shows] the arrays to show, if not all */
function begin(name, id, shows = lab.embedded?.shows) {
  Object.assign(lab, { bench: name, start: id, inputs: inputs_of(name, id), watched: DEFAULT_WATCH[name], is_pinned: false });
  lab.shows = $("all").checked ? undefined : shows;
  lab.touched = undefined;
  settle();
  make_tables();
}

/** Set up a question, and ask it. */
function ask(question) {
  begin(bench_of(question), question.start, question.shows);
  Object.assign(lab, { watched: question.watch, question });
  for (const [input, row, column, value] of question.change) lab.inputs[input][row][column] = value;
  $("estimate").value = "";
  update();
}

/** Ask a question that the reader has chosen, and bring it into sight. */
function open_question(question) {
  ask(question);
  const [name, i, j] = question.watch;
  outputs[name][i][j].scrollIntoView({ block: "nearest" });
  $("guess").querySelector("button").focus({ preventScroll: true });
}

/** Change a number at random, and ask about another. */
function ask_at_random() {
  const one_of = (list) => list[Math.floor(Math.random() * list.length)];
  const places = (tables) => Object.entries(tables).flatMap(([name, rows]) =>
    rows.flatMap((row, i) => row.map((_, j) => [name, i, j])));
  const numbers = places(fields).filter(([name]) => !bench().arrays[name].is_mask);
  const results = places(outputs);
  const changed = one_of(numbers);
  const affected = results.filter((place) => sources_of(place, bench(), lab.before).has(key_of(changed)));
  const [name, i, j] = changed;
  const value = lab.inputs[name][i][j] + one_of([-1, 1]);
  settle();
  change([[name, i, j, Math.abs(value) > bench().largest ? 0 : Number(short(value))]]);
  lab.watched = one_of(Math.random() < 0.8 ? affected : results);
  show();
}

function take_back() {
  lab.question = undefined;
  lab.inputs = copy_of_all(lab.settled);
  update();
  lab.touched?.focus();
}

// -- tables -----------------------------------------------------------------------------------------------------------

let fields = {}; // of each input: its fields
let outputs = {}; // of each computed array: its cells

/** Put all arrays of the bench into tables: matrices each into one, rows of the same axis, and single numbers, together. */
function make_tables() {
  [fields, outputs] = [{}, {}];
  const is_shown = (name) => !lab.shows || lab.shows.includes(name);
  for (const part of ["inputs", "forward", "backward"]) {
    const groups = new Map(); // what stands in one table
    for (const [name, array] of Object.entries(bench().arrays)) {
      if (array.part !== part || !is_shown(name)) continue;
      const key = array.axes[0] ? name : `${array.axes[1]}`;
      groups.set(key, [...(groups.get(key) ?? []), name]);
    }
    const tables = [...groups.values()].map((group) => (part === "inputs" ? input_table(group) : output_table(group)));
    $(part).replaceChildren(...tables);
    $(part).parentNode.hidden = !tables.length;
  }
  $("controls").hidden = !("scale" in lab.inputs) || !is_shown("scale");
  $("bench-text").textContent = bench().text;
  for (const node of document.querySelectorAll(".largest")) node.textContent = bench().largest;
  $("starts").replaceChildren(...STARTS[lab.bench].map(({ id, title }) => element("option", { value: id }, title)));
  $("starts").value = lab.start;
  for (const radio of document.querySelectorAll("[name=bench]")) radio.checked = radio.value === lab.bench;
  const buttons = QUESTIONS[lab.bench].map((question, i) =>
    pressable(() => open_question(question), { id: `question-${question.id}` }, `${i + 1}. ${question.title}`));
  $("questions").replaceChildren(element("b", {}, "Questions:"), ...buttons);
}

/** The name of an array and its formula, or what it is. */
function caption_of(name) {
  const { symbol = name, text, parts } = bench().arrays[name];
  return [element("b", {}, symbol), parts ? ` = ${text}` : ` ${text}`];
}

/** The head of a row or column: its word, or its number, with the letter of its axis. */
function head_of(axis, i) {
  const word = start_named(lab.bench, lab.start).names?.[axis]?.[i];
  return word ?? `${{ query: "q", key: "k" }[axis] ?? ""}${names().numbered(axis, i)}`;
}

/** A table of the arrays of a group. @param {(name: string, i: number, j: number) => Node} cell */
function table_of(group, cell, attributes = {}) {
  const [first] = group;
  const [row_axis, column_axis] = bench().arrays[first].axes;
  const row_of_cells = (name, i, ...head) =>
    element("tr", {}, ...head, ...lab.shown[name][i].map((_, j) => cell(name, i, j)));
  const n_columns = lab.shown[first][0].length;
  const row_head = (i) => element("th", { scope: "row" }, head_of(row_axis, i));
  const name_of = (name) => element("tr", {}, element("th", { scope: "rowgroup", colspan: n_columns }, ...caption_of(name)));
  const bodies = row_axis
    ? [element("tbody", {}, ...lab.shown[first].map((_, i) => row_of_cells(first, i, row_head(i))))]
    : group.map((name) => element("tbody", {}, name_of(name), row_of_cells(name, 0)));

  const has_words = [row_axis, column_axis].some((axis) => start_named(lab.bench, lab.start).names?.[axis]);
  const kinds = [column_axis ? "rows" : "single"];
  if (row_axis) kinds[0] = "matrix";
  if (has_words) kinds.push("named");
  if (n_columns > 4) kinds.push("wide");
  const table = element("table", { class: kinds.join(" "), "aria-label": group.join(", "), ...attributes });
  if (row_axis) table.append(element("caption", {}, ...caption_of(first)));
  if (column_axis) {
    const heads = lab.shown[first][0].map((_, j) => element("th", { scope: "col" }, head_of(column_axis, j)));
    table.append(element("thead", {}, element("tr", {}, ...(row_axis ? [element("td")] : []), ...heads)));
  }
  table.append(...bodies);
  return element("div", {}, table);
}

function input_table(group) {
  for (const name of group) {
    const new_field = bench().arrays[name].is_mask ? box_of : field_of;
    fields[name] = lab.inputs[name].map((row, i) => row.map((_, j) => new_field(name, i, j)));
  }
  return table_of(group, (name, i, j) => element("td", {}, fields[name][i][j]));
}

function field_of(name, i, j) {
  const label = `${names().symbol([name, i, j])}, ${names().told([name, i, j])}`;
  const field = element("input", { class: "number", type: "number", step: "0.1", "aria-label": label });
  return number_field(field, name, i, j);
}

function box_of(name, i, j) {
  const box = element("input", { type: "checkbox", "aria-label": names().told([name, i, j]) });
  box.addEventListener("change", () => change([[name, i, j, box.checked]], box));
  box.addEventListener("keydown", lead_to_question);
  return box;
}

/** The results of a group: one stop of the Tab key, in which arrows move, and Enter chooses what is asked about. */
function output_table(group) {
  for (const name of group) {
    outputs[name] = lab.shown[name].map((row, i) => row.map((_, j) => {
      const cell = element("td", { class: "value", tabindex: -1 });
      cell.addEventListener("click", () => watch([name, i, j]));
      return cell;
    }));
  }
  const node = table_of(group, (name, i, j) => outputs[name][i][j], { role: "grid" });
  const cells = group.flatMap((name) => outputs[name]);
  cells[0][0].tabIndex = 0;
  node.addEventListener("keydown", (event) => {
    const i = cells.findIndex((row) => row.includes(event.target));
    const j = cells[i]?.indexOf(event.target);
    if (j === undefined) return;
    if (["Enter", " "].includes(event.key)) {
      event.preventDefault();
      event.target.click();
    }
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const next = move && cells[i + move[0]]?.[j + move[1]];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return node;
}

/** Ask about a number from now on; a prediction of another one counts no more. */
function watch(place) {
  Object.assign(lab, { watched: place, is_pinned: true, answer: undefined });
  show();
}

/** Enter leads from a field to the question. */
function lead_to_question(event) {
  if (event.key === "Enter" && lab.is_pending) {
    event.preventDefault();
    $("guess").querySelector("button").focus({ preventScroll: true });
  }
}

/** Let the number of a field be typed, stepped with the arrow keys, or dragged sideways. */
function number_field(field, name, i = 0, j = 0) {
  const value_now = () => lab.inputs[name]?.[i]?.[j];
  const changed = () => {
    const { largest } = bench();
    const valid = field.value !== "" && Math.abs(Number(field.value)) <= largest;
    field.setAttribute("aria-invalid", String(!valid));
    if (valid) change([[name, i, j, Number(short(Number(field.value)))]], field); // what will be shown
  };
  field.addEventListener("input", changed);
  field.addEventListener("keydown", lead_to_question);
  field.addEventListener("wheel", () => field.blur(), { passive: true }); // scroll the page and leave the number alone
  field.addEventListener("blur", () => {
    if (value_now() === undefined) return; // another bench is shown now
    field.value = short(value_now());
    field.setAttribute("aria-invalid", "false");
  });
  let from = null; // where a drag began
  field.addEventListener("pointerdown", (event) => {
    if (event.button) return; // another than the main one
    from = { x: event.clientX, value: value_now(), moves: false };
    field.setPointerCapture(event.pointerId);
  });
  field.addEventListener("pointermove", (event) => {
    if (!from || (!from.moves && Math.abs(event.clientX - from.x) < 5)) return;
    from.moves = true;
    const { largest } = bench();
    const value = from.value + Math.round((event.clientX - from.x) / 5) * 0.1;
    field.value = short(Math.min(Math.max(value, -largest), largest));
    changed();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    field.addEventListener(end, () => {
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
function in_cell(value) {
  const size = Math.abs(value);
  if (size < 100) return number(value, 4);
  return number(value, size < 1e4 ? 2 : 1);
}

// -- show -------------------------------------------------------------------------------------------------------------

/** Fill the cells of an array. @param {Matrix} [differences] shown below, for gradients */
function fill(name, values, differences) {
  const peak = peak_of(values);
  const { is_masked } = bench().arrays[name];
  values.forEach((row, i) => row.forEach((value, j) => {
    const cell = outputs[name][i][j];
    const masked = is_masked?.(lab.shown, i, j);
    const direction = direction_of(lab.before[name][i][j], value);
    cell.dataset.value = value;
    cell.classList.toggle("minus", value < 0);
    cell.classList.toggle("up", direction > 0);
    cell.classList.toggle("down", direction < 0);
    cell.classList.toggle("watched", key_of(lab.watched) === key_of([name, i, j]));
    cell.style.setProperty("--tint", masked ? 0 : ((Math.abs(value) / peak) * 22).toFixed(1));
    cell.replaceChildren(masked ? "masked" : in_cell(value));
    if (differences) {
      cell.dataset.difference = differences[i][j];
      cell.append(element("small", {}, in_cell(differences[i][j])));
    }
  }));
}

/** Show everything. @param {Element} [typing] the field in which someone types, which is left alone */
function show(typing) {
  const changed = new Set(changes().map(key_of));
  for (const [name, rows] of Object.entries(fields)) {
    rows.forEach((row, i) => row.forEach((field, j) => {
      const value = lab.inputs[name][i][j];
      if (field.type === "checkbox") field.checked = value;
      else if (field !== typing) field.value = short(value);
      field.classList.toggle("changed", changed.has(key_of([name, i, j])));
    }));
  }
  if ("scale" in lab.inputs) {
    const [[scale]] = lab.inputs.scale;
    if ($("scale") !== typing) $("scale").value = short(scale);
    if ($("scale-range") !== typing) $("scale-range").value = scale;
    $("scale").classList.toggle("changed", changed.has("scale,0,0"));
  }
  const inputs = lab.is_pending ? lab.settled : lab.inputs;
  const differences = differences_of(bench(), inputs, lab.shown);
  for (const name of Object.keys(outputs)) fill(name, lab.shown[name], differences[name]);
  const gaps = Object.entries(differences).flatMap(([name, rows]) =>
    rows.flatMap((row, i) => row.map((value, j) => Math.abs(value - lab.shown[name][i][j]))));
  $("difference").textContent = with_exponent(Math.max(...gaps));
  show_flow();
  show_panel();
  write_address();
}

/** The drawing of what is computed from what, with the way of the change once it is shown. */
function show_flow() {
  const is_moved = (name) => lab.shown[name].some((row, i) => row.some((value, j) => brief(value) !== brief(lab.before[name][i][j])));
  const moved = new Set(Object.keys(bench().arrays).filter((name) => bench().arrays[name].parts && is_moved(name)));
  const changed = new Set(changes().map(([name]) => name));
  const arrays = lab.shows ?? Object.keys(bench().arrays);
  $("flow").innerHTML = flow(lab.bench, arrays, { changed, moved, watched: lab.watched[0] }, lab.shown);
}

/** What was changed, in words. */
function told_changes() {
  const told = names();
  const one = (place) => {
    const [name, i, j] = place;
    const [old, now] = [lab.settled[name][i][j], lab.inputs[name][i][j]];
    if (bench().arrays[name].is_mask) return `${told.symbol(place)} is ${now ? "" : "not "}checked`;
    return `${told.symbol(place)} from ${brief(old)} to ${brief(now)}`;
  };
  const all = changes();
  const first = all.slice(0, 4).map(one);
  return `Changed: ${list_of(all.length > 4 ? [...first, `${all.length - 4} more`] : first)}.`;
}

/** The question, or its answer with the reason. */
function show_panel() {
  const told = names();
  const n_changes = changes().length;
  const [old, now] = watched_values();
  const asks = lab.is_pending;
  const is_told = n_changes > 0 && !asks;

  const question_shown = lab.question && key_of(lab.question.watch) === key_of(lab.watched) ? lab.question : undefined;
  const story = question_shown ? [element("b", {}, question_shown.story), " "] : [];
  const hint = lab.is_asking ? "Change any number, or take a question. You say first what it does to the framed result."
    : "Change any number: the framed result is explained here.";
  $("change").replaceChildren(...(n_changes ? [...story, told_changes()] : [hint]));
  const question = asks ? `${told.symbol(lab.watched)}, ${told.told(lab.watched)}, is ${brief(old)}. What will it do?` : "";
  if ($("question").textContent !== question) $("question").textContent = question;
  $("guess").hidden = !asks;
  if (!asks) $("estimate").value = "";

  const verdict = is_told ? verdict_of(told, old, now) : "";
  if ($("verdict").textContent !== verdict) $("verdict").textContent = verdict;
  $("verdict").className = "";
  if (is_told && is_predicted()) $("verdict").className = is_right() ? "right" : "other";
  $("lesson").textContent = is_told && question_shown ? question_shown.lesson : "";
  $("why").replaceChildren(...(is_told ? why(lab.watched, told, lab.before, lab.shown) : []));

  const following = next_question();
  $("next").hidden = asks || !following || Boolean(lab.embedded);
  $("random").hidden = asks;
  $("undo").hidden = !n_changes;
  $("count").textContent = lab.n_asked ? `Predicted so far: ${lab.n_right} of ${lab.n_asked}.` : "";
  for (const node of document.querySelectorAll("h2 .before")) node.textContent = asks ? "before the change" : "";
  for (const each of QUESTIONS[lab.bench]) {
    const button = $(`question-${each.id}`);
    button.setAttribute("aria-pressed", String(lab.question === each));
    if (lab.question === each) bring_to_middle(button, $("questions"));
  }
}

/** Scroll a line sideways, and nothing else, until a part of it is in its middle: on a telephone it is cut off. */
function bring_to_middle(part, line) {
  const middle = (node) => node.offsetLeft + node.offsetWidth / 2;
  line.scrollLeft = middle(part) - middle(line);
}

const is_predicted = () => lab.answer !== undefined;
const is_right = () => lab.answer.direction === direction_of(...watched_values());

/** What the number does, and whether that was predicted. */
function verdict_of(told, old, now) {
  const symbol = told.symbol(lab.watched);
  const direction = direction_of(old, now);
  const what = direction ? `${DIRECTIONS[direction]} from ${brief(old)} to ${brief(now)}` : `stays ${brief(now)}`;
  if (!is_predicted()) return `${symbol}, ${told.told(lab.watched)}, ${what}.`;
  const judged = is_right() ? "Right" : `No (you said: ${DIRECTIONS[lab.answer.direction]})`;
  const { estimate } = lab.answer;
  if (estimate === undefined) return `${judged}: ${symbol} ${what}.`;
  const distance = is_same(estimate, now) ? "is exact" : `${brief(estimate)} is ${brief(Math.abs(estimate - now))} away`;
  return `${judged}: ${symbol} ${what}. Your number ${distance}.`;
}

/** The question after the one that is open, also of the next bench; or the first of this bench. */
function next_question() {
  const list = Object.values(QUESTIONS).flat();
  return lab.question ? list[list.indexOf(lab.question) + 1] : QUESTIONS[lab.bench][0];
}

// -- the address ------------------------------------------------------------------------------------------------------

function write_address() {
  const parts = new URLSearchParams();
  if (lab.question) parts.set("question", lab.question.id);
  else {
    parts.set("bench", lab.bench);
    parts.set("start", lab.start);
    const inputs = lab.is_pending ? lab.settled : lab.inputs;
    for (const place of changed_inputs(bench(), inputs_of(lab.bench, lab.start), inputs)) {
      const [name, i, j] = place;
      parts.set(place.join("."), String(Number(inputs[name][i][j])));
    }
    parts.set("watch", lab.watched.join("."));
  }
  if (!lab.is_asking) parts.set("ask", "off");
  if ($("all").checked) parts.set("all", "on");
  $("whole").firstChild.href = `lab.html#${parts}`;
  if (lab.embedded) parts.set("embed", lab.embedded.id);
  if (location.hash.slice(1) !== String(parts)) history.replaceState(null, "", `#${parts}`);
}

/** Begin with what the address says; what it does not say rightly is left out. */
function read_address() {
  const parts = new URLSearchParams(location.hash.slice(1));
  lab.is_asking = parts.get("ask") !== "off";
  $("asking").checked = lab.is_asking;
  lab.embedded = question_named(parts.get("embed"));
  document.body.classList.toggle("embedded", Boolean(lab.embedded));
  $("whole").hidden = !lab.embedded;
  if (lab.embedded) $("panel").parentNode.prepend($("panel")); // the question is read first
  $("all").checked = parts.get("all") === "on";
  const question = String(parts) ? question_named(parts.get("question")) : QUESTIONS.attention[0];
  if (question) {
    ask(question);
    return;
  }
  const name = Object.hasOwn(BENCHES, parts.get("bench")) ? parts.get("bench") : "attention";
  begin(name, (start_named(name, parts.get("start")) ?? STARTS[name][0]).id);
  const place_of = (text, arrays) => {
    const [array, i, j] = text.split(".");
    return Object.hasOwn(arrays, array) && arrays[array][i]?.[j] !== undefined ? [array, Number(i), Number(j)] : undefined;
  };
  for (const [text, value] of parts) {
    const place = place_of(text, lab.inputs);
    if (!place || !(Math.abs(Number(value)) <= bench().largest)) continue;
    const [array, i, j] = place;
    lab.inputs[array][i][j] = bench().arrays[array].is_mask ? value === "1" : Number(value);
  }
  settle();
  const watched = place_of(parts.get("watch") ?? "", lab.shown);
  if (watched && bench().arrays[watched[0]].parts) Object.assign(lab, { watched, is_pinned: true });
  update();
}

// -- the page ---------------------------------------------------------------------------------------------------------

$("benches").append(...Object.entries(BENCHES).map(([name, { title }]) => {
  const radio = element("input", { type: "radio", name: "bench", value: name });
  radio.addEventListener("change", () => {
    begin(name, STARTS[name][0].id);
    update();
  });
  return element("label", {}, radio, ` ${title}`);
}));
$("starts").addEventListener("change", (event) => {
  begin(lab.bench, event.target.value);
  update();
});
$("asking").addEventListener("change", (event) => {
  lab.is_asking = event.target.checked;
  update();
});
$("all").addEventListener("change", () => {
  lab.shows = $("all").checked ? undefined : lab.question?.shows;
  if (lab.shows && !lab.shows.includes(lab.watched[0])) lab.watched = lab.question.watch;
  make_tables();
  show();
});
number_field($("scale"), "scale");
$("scale-range").addEventListener("input", (event) => change([["scale", 0, 0, Number(event.target.value)]], event.target));
$("default-scale").addEventListener("click", (event) =>
  change([["scale", 0, 0, 1 / Math.sqrt(lab.inputs.k[0].length)]], event.target));
for (const [id, mask] of [["causal", causal_mask], ["all-keys", no_mask]]) {
  $(id).addEventListener("click", (event) => {
    const kept = mask(lab.inputs.q.length, lab.inputs.k.length);
    change(kept.flatMap((row, t) => row.map((keeps, s) => ["keep_mask", t, s, keeps])), event.target);
  });
}
for (const button of $("guess").querySelectorAll("button")) {
  button.addEventListener("click", () => answer(Number(button.value)));
}
$("panel").addEventListener("keydown", (event) => {
  if (event.key === "Escape") lab.touched?.focus();
});
$("next").addEventListener("click", () => open_question(next_question()));
$("random").addEventListener("click", ask_at_random);
$("undo").addEventListener("click", take_back);
$("verdict").tabIndex = -1;
read_address();
addEventListener("hashchange", read_address);

if (lab.embedded && parent !== window) { // tell the page around this one that it runs, and how high it is
  const tell = () => parent.postMessage({ lab: Math.ceil(document.body.getBoundingClientRect().height) }, "*");
  tell(); // a browser may not observe sizes in a part of the page that is not seen
  new ResizeObserver(tell).observe(document.body);
}
