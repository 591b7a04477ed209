"use strict";
// The page: its state, which the address keeps, the figure with its boxes, and one number's gradient.

const tiny = tiny_transformer();

const FIELDS = { // of the settings: name in the address, text, smallest, largest, default
  d_model: ["D", "width D", 4, 48, 16],
  n_heads: ["H", "heads H", 1, 4, 2],
  n_layers: ["N", "layers N", 1, 3, 1],
  d_ff: ["F", "feed-forward width F", 4, 96, 32],
  letters: ["letters", "letters", 2, 26, 26],
  length: ["length", "letters of a word", 2, 10, 6],
  seed: ["seed", "seed", 0, 9999, 2],
};
const TASK_NAMES = { reverse: "reverse the word", copy: "copy the word", sort: "sort its letters" };
const TASK_TEXTS = { reverse: "write the word backwards", copy: "write the same word", sort: "write the letters of the word in alphabetical order" };
const MOST_STEPS = 5000;
const SAVED_BYTES = 6e7; // of parameters that are kept for the slider

const state = { run: 0, view: "values", box: null, at: null, trail: [], guess: null, before: null, note: "" };
let settings, trainer, boxes, traced, steps, tables;

// -- settings and address ---------------------------------------------------------------------------------------------

/** What is wrong with settings, or "". */
function problem(chosen) {
  for (const [name, [, text, least, most]] of Object.entries(FIELDS)) {
    if (!Number.isInteger(chosen[name]) || chosen[name] < least || chosen[name] > most) {
      const why = name === "letters" && chosen[name] === 1 ? " With one letter there is only one word, and nothing to learn." : "";
      return `${text[0].toUpperCase()}${text.slice(1)} must be a whole number from ${least} to ${most}.${why}`;
    }
  }
  if (chosen.d_model % chosen.n_heads) return `The width ${chosen.d_model} cannot be cut into ${chosen.n_heads} heads: choose a multiple of ${chosen.n_heads}.`;
  if (!Object.hasOwn(tiny.TASKS, chosen.task)) return `There is no task “${chosen.task}”: choose ${Object.keys(tiny.TASKS).join(", ")}.`;
  return chosen.broken && !Object.hasOwn(BREAKS, chosen.broken) ? `There is no change “${chosen.broken}”.` : "";
}

function defaults() {
  const sizes = Object.fromEntries(Object.entries(FIELDS).map(([name, field]) => [name, field[4]]));
  return { ...sizes, task: "reverse", broken: "", batch: 32 };
}

const ids_of = (word) => [...word].map((c) => c.charCodeAt(0) - 94);
const is_word = (word, { letters, length }) => word.length === length && ids_of(word).every((id) => id >= 3 && id < letters + 3);

function first_word(chosen) { // of different letters, if there are enough
  if (is_word("planet", chosen)) return "planet";
  const random = tiny.generator(chosen.seed + 7);
  const places = Array.from({ length: chosen.letters }, random);
  const ids = [...places.keys()].sort((a, b) => places[a] - places[b]);
  return Array.from({ length: chosen.length }, (_, i) => letter_of(3 + ids[i % ids.length])).join("");
}

function write_address() {
  const { step, of } = state.again ?? { step: shown().step, of: state.saved.at(-1)?.step };
  const parts = new URLSearchParams({ task: settings.task });
  for (const [name, [short]] of Object.entries(FIELDS)) parts.set(short, settings[name]);
  const others = { word: state.word, break: settings.broken, guess: state.guess, view: state.view, box: state.box, at: state.at?.join(":"), step, of };
  for (const [name, value] of Object.entries(others)) if (value) parts.set(name, value);
  if (location.hash.slice(1) !== String(parts)) history.replaceState(null, "", `#${parts}`);
}

function read_address() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const chosen = { ...defaults(), task: parts.get("task") ?? "reverse", broken: parts.get("break") ?? "" };
  for (const [name, [short]] of Object.entries(FIELDS)) if (parts.has(short)) chosen[name] = parts.get(short) === "" ? NaN : Number(parts.get(short));
  const wrong = problem(chosen);
  const asked = wrong ? new URLSearchParams() : parts;
  state.word = asked.get("word");
  state.guess = Object.hasOwn(OUTCOMES, asked.get("guess")) ? asked.get("guess") : null;
  state.view = asked.get("view") === "gradients" ? "gradients" : "values";
  const at = (asked.get("at") ?? "").split(":");
  Object.assign(state, { box: asked.get("box"), at: at.length === 3 ? [at[0], Number(at[1]), Number(at[2])] : null, trail: [], before: null });
  const [step, of] = ["step", "of"].map((name) => Math.min(Math.max(Math.floor(Number(asked.get(name))) || 0, 0), MOST_STEPS));
  state.asked = asked; // before beginning, which without a worker is over when it returns
  begin(wrong ? defaults() : chosen);
  if (wrong) state.note = `The address asks for what this page cannot do. ${wrong} It shows the default instead.`;
  if (step || of) train(step || of, { step, of: Math.max(step, of) });
}

/** Say it if the address that was read has parts that the page did not take. */
function note_what_was_not_read() {
  const now = new URLSearchParams(location.hash.slice(1));
  const is_lost = [...state.asked].some(([name, value]) => value !== "0" && value !== now.get(name));
  if (is_lost) state.note = "Part of the address was not understood; standard values are used.";
  state.asked = null;
}

// -- training ---------------------------------------------------------------------------------------------------------

function begin(chosen) {
  settings = chosen;
  state.run += 1;
  if (!state.word || !is_word(state.word, settings)) state.word = first_word(settings);
  Object.assign(state, { saved: [], shown: 0, losses: [], measured: [], nan: null, running: false, until: 0, again: null, note: "" });
  trainer.send({ start: { ...settings, run: state.run } });
  fill_settings();
  write_address();
}

/** Train n steps more. `again` {step, of} is what an address asks for: train to `of`, and then show `step`. */
function train(n, again = null) {
  const last = state.running ? state.until : state.saved.at(-1)?.step ?? 0;
  n = Math.min(n, MOST_STEPS - last);
  if (state.nan || n <= 0) return;
  if (!state.running) state.clock = { time: performance.now(), step: last };
  Object.assign(state, { again, running: true, is_single: n === 1 && !again, until: last + n, shown: state.saved.length - 1 });
  trainer.send({ train: n });
  show_buttons();
  write_address();
}

/** What an address asked for is reached in up to two parts. */
function go_on({ step, of }) {
  const last = state.saved.at(-1).step;
  if (last < of) return train(of - last, { step, of });
  state.shown = Math.max(state.saved.findLastIndex((x) => x.step <= step), 0);
  state.again = null;
  show();
}

function hear(message) {
  if (message.run !== state.run) return;
  if (message.nan) {
    const { key, step } = message.nan;
    const { where } = described(boxes, key.replace(/(^|\.)d([^.]+)$/, "$1$2"), 0, 0);
    const pass = /(^|\.)d[^.]+$/.test(key) ? "backward" : "forward";
    state.nan = { step, where: where ? `“${where}” (${key})` : key, pass };
    Object.assign(state, { running: false, again: null });
    show_buttons();
    return show_verdict();
  }
  const follows = state.shown >= state.saved.length - 1;
  state.losses.push(...message.losses);
  const { step, params, measured } = message;
  if (state.saved.at(-1)?.step === step) state.saved.pop();
  state.saved.push({ step, params, measured: measured || null });
  if (measured) state.measured = [...state.measured.filter((m) => m.step !== step), { step, ...measured }];
  thin_out();
  if (follows) state.shown = state.saved.length - 1;
  if (message.paused) Object.assign(state, { until: step, again: null });
  state.running = step < state.until;
  if (step === 0) build_figure();
  show();
  if (step === 0 && state.asked) note_what_was_not_read();
  if (!state.running && state.again) go_on(state.again);
  show_buttons();
  if (!state.running) show_verdict();
}

/** Keep every second of the saved steps when they are too many. */
function thin_out() {
  let bytes = 0;
  tiny.for_each_array((path, x) => { bytes += 8 * x.data.length; }, state.saved[0].params);
  if (state.saved.length <= Math.min(240, Math.max(12, SAVED_BYTES / bytes))) return;
  const kept = state.saved.filter((_, i) => i % 2 === 0 || i === state.saved.length - 1);
  state.shown = Math.min(Math.ceil(state.shown / 2), kept.length - 1);
  state.saved = kept;
}

const shown = () => state.saved[state.shown] ?? { step: 0 };

// -- what is always seen ----------------------------------------------------------------------------------------------

function show() {
  const { params, step } = shown();
  const word = ids_of(state.word);
  traced = trace(tiny, params, word, settings);
  steps = null; // they are made when a number is followed
  const [src] = tiny.batch_of([word], settings.task);
  const said = tiny.greedy_decode(params, src, settings, settings.length + 1)[0];
  const word_of = (ids) => ids.filter((id) => id > tiny.END).map(letter_of).join("");
  const is_right = said.join() === traced.tgt.slice(1).join();
  const letters = word_of(said);
  if (!$("word-message").textContent) {
    $("wanted").textContent = word_of(traced.tgt);
    $("said").replaceChildren(letters ? element("b", {}, letters) : "(an empty word)", element("span", { role: "img", "aria-label": is_right ? "right" : "wrong" }, is_right ? " ✓" : " ✗"));
  }
  show_maps(step);
  show_measures(step);
  show_boxes();
  show_number();
  write_address();
}

function show_maps(step) {
  const key = `decoder.${settings.n_layers - 1}.memory_attention.weights`;
  const places = tiny.TASKS[settings.task](ids_of(state.word));
  const [rows, cols] = [rows_of(traced.tgt), [...state.word]];
  const T = rows.length;
  $("maps").replaceChildren(...Array.from({ length: settings.n_heads }, (_, h) => (
    attention_map(`head ${h + 1}`, part_of(traced.seen[key], [h * T, (h + 1) * T]), rows, cols, places))));
  $("maps-text").textContent = `Cross-attention at step ${step}: how much each row reads from each letter of the word, from 0 (no colour) to 1 (red). Row a → l has read a and should write l. The frame is where l stands. The last row should write ‘end’. This is no letter of the word, so the row has no frame.`;
}

function show_measures(step) {
  const m = state.measured.filter((x) => x.step <= step).at(-1);
  const texts = { loss: digits(m.loss), right: percent(m.right), share: percent(Math.max(...m.shares)), step: m.step };
  for (const [name, text] of Object.entries(texts)) $(`m-${name}`).textContent = text;
  curves($("curves"), { losses: state.losses, rights: state.measured.map((x) => [x.step, x.right]), start: state.measured[0].loss, other: state.before, at: step, until: state.until });
  $("other-key").hidden = !state.before;
  const slider = $("saved");
  [slider.max, slider.value] = [state.saved.length - 1, state.shown];
  slider.setAttribute("aria-valuetext", `step ${step}`);
  $("at-text").textContent = state.running ? `Step ${step} of ${state.again?.of ?? state.until}${time_left()}` : `Step ${step} of ${state.saved.at(-1).step}. Back through the steps:`;
}

/** How long the training will go on, if that is long. */
function time_left() {
  const last = state.saved.at(-1).step;
  if (last <= state.clock.step) return "";
  const seconds = (performance.now() - state.clock.time) / (last - state.clock.step) * ((state.again?.of ?? state.until) - last) / 1000;
  return seconds < 10 ? "" : seconds < 90 ? `, about ${10 * Math.round(seconds / 10)} s left` : `, about ${Math.round(seconds / 60)} min left`;
}

const is_waiting = () => Boolean(settings.broken && !state.guess); // for the prediction

/** A button that cannot be used keeps the focus. */
function show_buttons() {
  const { running, nan } = state;
  const is_over = Boolean(nan) || state.saved.at(-1)?.step >= MOST_STEPS;
  const usable = { step: !running || state.is_single, train: !running, try: !running, pause: running };
  for (const [id, can] of Object.entries(usable)) $(id).setAttribute("aria-disabled", String(!can || (id !== "pause" && (is_over || is_waiting()))));
  for (const node of document.querySelectorAll(".first")) node.hidden = !is_waiting();
  const texts = [nan && `Stopped: at step ${nan.step} a number was no longer finite. It began in the ${nan.pass} pass in ${nan.where}. Move the slider back to look at the steps before.`, state.again && `Training again to step ${state.again.of} …`, state.note,
    !trainer.has_worker() && "This browser has no workers: the page itself trains, in short slices, and answers a little later.",
    !nan && is_over && `This page goes to step ${MOST_STEPS}: restart, or choose other sizes.`];
  const text = texts.filter(Boolean).join(" ");
  if ($("message").textContent !== text) $("message").textContent = text; // a status is read out when it is written
}

function on_click(id, act) {
  $(id).addEventListener("click", () => {
    if ($(id).getAttribute("aria-disabled") !== "true") act();
    else if (is_waiting()) ask();
  });
}

/** Go to the question that is to be answered first. */
function ask() {
  document.querySelector("[name=guess]").focus();
  $("predict").scrollIntoView({ block: "nearest" });
}

// -- the figure -------------------------------------------------------------------------------------------------------

function build_figure() {
  traced = trace(tiny, shown().params, ids_of(state.word), settings);
  boxes = boxes_of(traced, settings);
  if (!boxes.some((box) => box.id === state.box)) state.box = null;
  if (state.at && !(state.at.slice(1).every(Number.isInteger) && described(boxes, ...state.at).box)) state.at = null;
  const last = boxes.filter((box) => box.side === "encoder").at(-1).row;
  const nodes = boxes.map((box) => {
    const canvas = element("canvas", { "aria-hidden": "true", class: box.shown.endsWith(".weights") ? "weights" : "" });
    const button = element("button", { type: "button", class: `box ${box.side}`, id: `box-${box.id}`, "aria-expanded": "false", style: `grid-row: ${2 * box.row}` },
      element("b", {}, box.title), element("small", {}, box.text), canvas);
    button.addEventListener("click", () => {
      open_box(state.box === box.id ? null : box.id);
      if (!state.box) return;
      $("panel").focus({ preventScroll: true });
      document.querySelector(".close").scrollIntoView({ block: "nearest" });
    });
    return button;
  });
  const skips = boxes.filter((box) => box.id.endsWith("_norm") && settings.broken !== "residual").map((box) => {
    const from = boxes[boxes.indexOf(box) - 1].row;
    return element("div", { class: `skip ${box.side}`, style: `grid-row: ${2 * from - 1} / ${2 * box.row + 1}`, "aria-hidden": "true" });
  });
  const memory = element("div", { class: "memory", style: `grid-row: ${2 * last + 1} / ${2 * last + 3}` }, element("small", {}, "memory: keys and values for the decoder"));
  $("figure").replaceChildren(view_switch(), ...skips, memory, ...nodes, element("div", { id: "panel", hidden: true, tabindex: "-1", role: "region" }));
  tables = [];
  if (state.box) open_box(state.box);
}

function view_switch() {
  const radios = ["values", "gradients"].map((view) => {
    const input = element("input", { type: "radio", name: "view", value: view, checked: state.view === view });
    input.addEventListener("change", () => {
      state.view = view;
      show_boxes();
      show_number();
      write_address();
    });
    return element("label", {}, input, view === "values" ? " values y" : " gradients dy");
  });
  const legend = element("div", { class: "legend" }, element("span", {}, "−"), element("i"), element("span", {}, "+"));
  return element("div", { id: "switch" }, element("fieldset", {}, element("legend", {}, "Each box shows"), ...radios),
    legend, element("small", {}, "0 has no colour; each matrix has its own scale, but weights and p go from 0 to 1"));
}

/** What is drawn red at most, if this is not the largest number of the matrix. */
const most_of = ({ key }) => (state.view === "values" && /\.(weights|probabilities)$/.test(key) ? 1 : undefined);

/** The array of a view, or its gradient, as it is seen. */
function matrix_of({ key, row_range, col_range, gradient }) {
  const matrix = traced.seen[state.view === "gradients" ? gradient ?? gradient_name(key) : key];
  return part_of(matrix, row_range, col_range);
}

function show_boxes() {
  $("figure").dataset.view = state.view;
  for (const box of boxes) {
    const node = $(`box-${box.id}`);
    const views = box.views.filter((view) => view.key === box.shown);
    picture(node.querySelector("canvas"), views.map(matrix_of), most_of(views[0]));
    node.setAttribute("aria-expanded", String(state.box === box.id));
  }
  for (const { view, fill } of tables) {
    const slope = view.gradient?.split(".").at(-1) ?? slope_of(view.name.split(" = ")[0]);
    fill(matrix_of(view), state.view === "gradients" ? slope : view.name, most_of(view));
  }
}

function open_box(id) {
  state.box = id;
  const box = boxes.find((x) => x.id === id);
  const panel = $("panel");
  panel.hidden = !box;
  tables = [];
  if (box) {
    const group = (title, views) => {
      const made = views.map((view) => ({ view, ...matrix_table({ title: `${box.name}: ${view.name}`, rows: view.rows, cols: view.cols, name: view.key }) }));
      tables.push(...made);
      return [element("h3", {}, title), element("div", { class: "matrices" }, ...made.map((x) => x.figure))];
    };
    // Parameters are many numbers: they are folded, unless the number that is followed is one of them.
    const folded = (views) => {
      const [title, matrices] = group("Parameters", views);
      const names = views.map(({ name, rows, cols }) => `${name} ${rows.length} × ${cols.length}`).join(", ");
      title.append(element("small", {}, ` ${names}`));
      const is_followed = views.some(({ key }) => key === state.at?.[0]);
      return element("details", { open: is_followed }, element("summary", {}, title), matrices);
    };
    panel.style.gridRow = 2 * box.row + 1;
    const close = element("button", { type: "button", class: "close" }, "Close");
    close.addEventListener("click", close_box);
    const card = element("div", { id: "number" });
    panel.replaceChildren(close, element("h3", {}, `${box.name}: ${box.text}`), card, ...group("Computed for your word", box.views),
      ...(box.params.length ? [folded(box.params)] : []));
    panel.setAttribute("aria-label", box.name);
  }
  show_boxes();
  show_number();
  write_address();
}

function close_box() {
  const id = state.box;
  open_box(null);
  $(`box-${id}`).focus();
}

// -- one number -------------------------------------------------------------------------------------------------------

function cell_of([key, i, j]) {
  const table = tables.find(({ view: { key: name, rows, cols, row_range: [r] = [0], col_range: [c] = [0] } }) => (
    name === key && i >= r && i < r + rows.length && j >= c && j < c + cols.length));
  if (!table) return null;
  const [i0, j0] = [i - (table.view.row_range?.[0] ?? 0), j - (table.view.col_range?.[0] ?? 0)];
  return table.figure.querySelector(`[data-i="${i0}"][data-j="${j0}"]`);
}

/** Choose a number; open its box if needed, and give it the focus. */
function choose(at, trail) {
  const { box } = described(boxes, ...at);
  Object.assign(state, { at, trail });
  if (box && box.id !== state.box) open_box(box.id);
  else show_number();
  const cell = cell_of(at);
  if (cell) {
    const parameters = cell.closest("details");
    if (parameters) parameters.open = true;
    focus_cell(cell);
    $("number").scrollIntoView({ block: "nearest" });
  }
  write_address();
}

function show_number() {
  const card = $("number");
  for (const cell of document.querySelectorAll("td.chosen, td.source")) cell.classList.remove("chosen", "source");
  if (!card) return;
  if (!state.at || described(boxes, ...state.at).box?.id !== state.box) {
    return void card.replaceChildren(element("p", {}, "Choose a number below (click, or arrow keys and Enter) to see where its gradient comes from."));
  }
  const [key, i, j] = state.at;
  if (key === "loss.probabilities") return choose(["output.logits", i, j], state.trail);
  const [y, dy] = [traced.seen[key], traced.seen[gradient_name(key)]];
  const [value, slope] = [y.data[i * y.m + j], dy.data[i * y.m + j]];
  const params = shown().params;
  steps ??= steps_of(traced, settings);
  const [from, to] = [comes_from(traced, steps, key, i, j), goes_to(traced, steps, key, i, j)];
  const total = from.reduce((sum, term) => sum + term.part, 0);
  const measured = key === "loss.loss" ? 1 : measured_slope(tiny, params, ids_of(state.word), settings, key, i * y.m + j);
  const agrees = Math.abs(measured - slope) <= 1e-6 + 1e-4 * Math.abs(slope);
  cell_of(state.at)?.classList.add("chosen");
  for (const term of [...from, ...to]) cell_of([term.key, term.i, term.j])?.classList.add("source");

  const name = described(boxes, key, i, j).text;
  const lines = [element("p", {}, element("b", {}, name), ` = ${digits(value)}. Its gradient is `, element("b", {}, `${slope_of(name)} = ${digits(slope)}`),
    ": if the number grows a little, the loss grows this many times as much."), element("p", { class: agrees ? "" : "differs" }, agrees
    ? `✓ Measured, by changing this number alone: ${digits(measured)}` : `✗ Measured, by changing this number alone: ${digits(measured)}. The backward pass is wrong here.`)];
  if (from.length && Math.abs(total - slope) > 1e-9 + 1e-6 * Math.abs(slope)) {
    lines.push(element("p", { class: "differs" }, `What arrives from the left column is ${digits(total)}: the backward pass has left out a part of it.`));
  }
  const back = element("button", { type: "button", disabled: !state.trail.length }, "← Back to the number before");
  back.addEventListener("click", () => choose(state.trail.at(-1), state.trail.slice(0, -1)));
  card.replaceChildren(...lines, element("div", { class: "ways" },
    terms_list("It comes from (← towards the loss): dy × local derivative", from, why_none(key, from)),
    terms_list("It goes on to (→ towards the parameters)", to, to.length ? "" : "This is a parameter, and this its gradient for your word. A step takes the mean over the words of its batch.", true)), back);
}

/** Why no gradient comes to a number, or "". */
function why_none(key, terms) {
  if (key === "loss.loss") return "This is the loss. Its gradient is 1: here the backward pass begins.";
  if (!terms.length) return "Your word does not use it: nothing was computed from it.";
  if (terms[0].factor !== 0) return "";
  if (key.endsWith(".h")) return "h is negative, so relu cuts the gradient off: dy × 0 = 0.";
  return `${/^decoder.*\.attention\.scores$/.test(key) ? "The mask makes its weight 0. " : ""}Each factor is 0: a small change of this number does not change the loss.`;
}

/** At most eight terms, each a button that leads to its number, and the sum of the others; before them, a sentence. */
function terms_list(title, terms, sentence, onwards = false) {
  const most = Math.max(...terms.map((term) => Math.abs(term.part)));
  const items = terms.slice(0, 8).map((term) => {
    const { text, where } = described(boxes, term.key, term.i, term.j);
    const [what, i, j, form] = term.what;
    const factor = i === undefined ? what : described(boxes, what, i, j, form).text;
    const share = element("i", { class: term.part < 0 ? "negative" : "positive", style: `width: ${(100 * Math.abs(term.part)) / (most || 1)}%` });
    const sum = `${digits(term.dy)} × ${digits(term.factor)} = ${digits(term.part)}`;
    const button = element("button", { type: "button" }, element("small", {}, `${where} `), element("b", {}, slope_of(text)), element("br"),
      `${onwards ? "gets dy " : ""}× ${factor}: ${sum}`, share);
    button.addEventListener("click", () => choose([term.key, term.i, term.j], [...state.trail, state.at]));
    return element("li", {}, button);
  });
  const others = terms.slice(8);
  if (others.length) items.push(element("li", {}, `and ${others.length} others${onwards ? "" : `, together ${digits(others.reduce((sum, term) => sum + term.part, 0))}`}`));
  const all = onwards || !terms.length ? "" : `. Sum: ${digits(terms.reduce((sum, term) => sum + term.part, 0))}`;
  return element("div", {}, element("h4", {}, title + all), sentence ? element("p", {}, sentence) : "", element("ol", {}, ...items));
}

// -- break it, settings -----------------------------------------------------------------------------------------------

function radio(name, value, text, checked, onchange) {
  const input = element("input", { type: "radio", id: `${name}-${value}`, name, value, checked });
  input.addEventListener("change", onchange);
  return element("label", {}, input, ` ${text}`);
}

function restart(chosen) {
  const changes_only_the_break = settings && ["task", ...Object.keys(FIELDS)].every((name) => settings[name] === chosen[name]);
  if (changes_only_the_break && !settings.broken && state.losses.length >= 100) state.before = [...state.losses];
  else if (!changes_only_the_break) state.before = null;
  begin(chosen);
}

function fill_settings() {
  const focused = document.activeElement.id; // it is made anew
  const pick = (broken) => () => {
    state.guess = null;
    restart({ ...settings, broken });
  };
  $("breaks").replaceChildren($("breaks").firstElementChild, radio("break", "", "everything (nothing is broken)", !settings.broken, pick("")),
    ...Object.entries(BREAKS).map(([name, change]) => radio("break", name, change.name, settings.broken === name, pick(name))));
  $("predict").hidden = !settings.broken;
  $("verdict").replaceChildren();
  $("change").textContent = BREAKS[settings.broken]?.change ?? "";
  $("guesses").replaceChildren($("guesses").firstElementChild, ...Object.entries(OUTCOMES).map(([name, text]) => radio("guess", name, text, state.guess === name, () => {
    state.guess = name;
    show_buttons();
    write_address();
  })));
  const task = element("select", { id: "task" }, ...Object.entries(TASK_NAMES).map(([name, text]) => element("option", { value: name, selected: settings.task === name }, text)));
  const fields = Object.entries(FIELDS).map(([name, [, text, least, most]]) => (
    element("label", {}, text, element("input", { type: "number", id: name, value: settings[name], "aria-describedby": "settings-message", title: `${least} to ${most}` }))));
  $("fields").replaceChildren(element("label", {}, "task", task), ...fields);
  $("task-text").textContent = TASK_TEXTS[settings.task];
  $("word").value = state.word;
  $("word").maxLength = settings.length;
  $("word").style.width = `${settings.length + 2}ch`;
  $("batch-text").textContent = settings.batch;
  for (const id of ["word-message", "settings-message"]) $(id).textContent = "";
  if (focused) $(focused)?.focus();
}

function show_verdict() {
  const last = state.saved.at(-1);
  if (!settings.broken || !(state.nan || last.step >= 500)) return $("verdict").replaceChildren();
  const run = {
    start: state.measured[0], end: state.measured.at(-1), nan: state.nan, step: last.step, losses: state.losses, settings,
    first_params: state.saved[0].params, last_params: last.params, word: ids_of(state.word),
  };
  $("verdict").replaceChildren(...verdict(tiny, settings.broken, state.guess, run).map((text, i) => element("p", {}, i ? text : element("b", {}, text))));
}

on_click("step", () => train(1));
on_click("train", () => train(500));
on_click("try", () => train(500));
on_click("pause", () => trainer.send({ pause: true }));
$("ask").addEventListener("click", ask);
$("again").addEventListener("click", () => begin(settings));
$("saved").addEventListener("input", () => {
  state.shown = Number($("saved").value);
  show();
});
$("word").addEventListener("input", () => {
  const word = $("word").value.toLowerCase();
  const last = letter_of(settings.letters + 2);
  $("word-message").textContent = is_word(word, settings) ? "" : `Type ${settings.length} letters from a to ${last}: it was trained on words of ${settings.length} letters only.`;
  if (!is_word(word, settings)) return ["wanted", "said"].forEach((id) => $(id).replaceChildren("…"));
  state.word = word;
  build_figure();
  show();
});
$("settings").addEventListener("submit", (event) => {
  event.preventDefault();
  const chosen = { ...settings, task: $("task").value };
  for (const name of Object.keys(FIELDS)) chosen[name] = $(name).value === "" ? NaN : Number($(name).value);
  $("settings-message").textContent = problem(chosen);
  if (problem(chosen)) return;
  Object.assign(state, { at: null, trail: [] });
  restart(chosen);
});
$("default").addEventListener("click", () => {
  Object.assign(state, { word: null, at: null, trail: [], guess: null });
  restart(defaults());
});
$("figure").addEventListener("click", (event) => {
  const cell = event.target.closest("td[data-i]");
  if (cell) choose_cell(cell);
});
$("figure").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("td[data-i]")) choose_cell(event.target);
  if (event.key === "Escape" && state.box) close_box();
});
function choose_cell(cell) {
  const { view } = tables.find(({ figure }) => figure.contains(cell));
  choose([view.key, Number(cell.dataset.i) + (view.row_range?.[0] ?? 0), Number(cell.dataset.j) + (view.col_range?.[0] ?? 0)], []);
}
window.addEventListener("hashchange", read_address);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  read_colours();
  if (state.saved.length) show();
});

trainer = start_training(tiny, hear);
read_address();
