"use strict";
// The first half of the page, its events, and its address, which holds the model, the text and the heads that are left out.

const SIGNS = { // in tokens
  "<begin>": "what the decoder reads first",
  "<end>": "the end of a text",
  "<unk>": "unknown: characters that are in no token",
  "<pad>": "padding, which is never written",
  "·": "goes on with the word before",
  "↑": "the next word begins with a capital letter",
  "(space)": "a word begins with the next token",
  "‿": "no space here",
};
const N_SHOWN = 6; // tokens in the table

function show() {
  const { vocabulary } = chosen(state.name);
  const traced = trace(state.name, state.src, read_tokens(), state.hidden);
  const { logits } = traced.decoded;
  const shares = state.tgt_in.slice(1).map((id, t) => shares_at(logits[t])[id]);
  state.best = logits.map(greedy);
  state.is_own = state.tgt_in.slice(1).every((id, t) => id === state.best[t]);
  show_try();
  show_tokens(shares);
  show_picture(traced);
  show_next(traced);
  show_parts(traced);
  show_without();
  $("hidden-text").textContent = effect_of_hiding(traced);
  $("verdict").textContent = verdict();
  $("lesson").textContent = lesson(shares);
  $("read").textContent = named(vocabulary.decode(state.src));
  $("said").textContent = named(vocabulary.decode(state.tgt_in)) + (state.tgt_in.at(-1) === EOS ? " <end>" : " …");
  $("next").disabled = is_finished();
  $("end").disabled = is_finished() && state.is_own && !state.draw; // it would write the same
  $("end").textContent = is_finished() && !$("end").disabled ? "Write again" : "To the end";
  for (const id of ["back", "begin"]) $(id).disabled = state.tgt_in.length === 1;
}

/** @param {number[]} shares the probability of each token of the target */
function show_tokens(shares) {
  const button = (place, pressed, note, act, kind = "") => {
    const [list, i, id] = place;
    return element("li", {}, pressable(() => {
      act();
      show();
      $(list).children[i].firstChild.focus({ preventScroll: true });
    }, { "aria-pressed": String(pressed), class: kind }, token(id), element("small", {}, note)));
  };
  $("source").replaceChildren(...state.src.map((id, s) => {
    const is_hidden = state.hidden.includes(s);
    return button(["source", s, id], is_hidden, is_hidden ? "hidden" : `id ${id}`, () => {
      state.hidden = is_hidden ? state.hidden.filter((place) => place !== s) : [...state.hidden, s];
      if (has_written(state.step)) choose_step(state.step, "which stays selected"); // the reason may hold no longer
    });
  }));
  const wrong = state.name === "reverse" ? first_wrong() : -1;
  $("target").replaceChildren(element("li", {}, token(BOS)), ...shares.map((share, t) =>
    button(["target", t + 1, state.tgt_in[t + 1]], t === state.step, `p ${number(share, 2)}`, () => {
      choose_step(t);
    }, `${t === wrong ? "wrong" : ""} ${share < UNSURE ? "unsure" : ""}`)));
}

function show_picture({ heads }) {
  const { step, src, tgt_in } = state;
  const last = heads.memory.at(-1);
  const weights = mean_of(last); // (T, S)
  const rows = step_names();
  const cols = src.map(token);
  const most = Math.min(24, Math.max(14, Math.floor(600 / rows.length)));
  const size = fitting($("picture"), rows, cols, most);
  $("picture").replaceChildren(heat_map({
    title: "Where each step looks.",
    text: "A row is a step: the token it reads last → the token that follows. A column is a source token. Press a row to " +
      "select it.",
    scale: `blank: 0, full colour: 1; the ${told_mean(heads)}, the last that reads the source before the token is written`,
    values: weights, keep_mask: last[0].keep_mask, height: size, width: size, chosen: step,
    rows, row: "step", cols, col: "looks at", marks: tried_cells(),
    choose: (t) => select(t, "#picture svg"),
  }));
  const best = largest_first(weights[step])[0];
  const looks = weights[step][best]
    ? `looks most at ${told_source(best)}, with ${percent(weights[step][best])} of its attention (${told_mean(heads)}),`
    : "looks at nothing, as all source tokens are hidden,";
  $("step-text").replaceChildren(element("b", {}, `Selected: step ${step + 1}, after ${told(tgt_in[step])},`),
    ` ${state.why}. It ${looks} ${told_writing(step)}.`);
  $("picture-text").textContent = task().pattern(weights);
}

/** Which weights are shown of the attention to the source. */
const told_mean = ({ memory }) => `mean of the ${memory[0].length} heads of layer ${memory.length}`;

/** What hiding does to the framed step. */
function effect_of_hiding({ decoded }) {
  const { name, src, hidden, step, tgt_in } = state;
  if (!hidden.length) {
    return "Does it matter where a step looks? Select a step, hide a source token, and see how the probability changes.";
  }
  const names = told_hidden();
  const [are, them] = hidden.length === 1 ? ["is", "it"] : ["are", "them"];
  if (tgt_in.length === 1) return `Now ${names} ${are} hidden: press To the end to write without ${them}.`;
  const all = trace(name, src, read_tokens()).decoded.logits[step];
  const [before, after] = [all, decoded.logits[step]].map((logits) => shares_at(logits));
  const id = tgt_in[step + 1] ?? greedy(all);
  const effect = Math.abs(after[id] - before[id]) < 0.01
    ? `changes by less than 0.01 if ${names} ${are} hidden`
    : `is ${number(after[id], 3)} with ${names} hidden, and ${number(before[id], 3)} without hiding`;
  return `The probability of ${told(id)} at the selected step ${effect}.`;
}

function show_next({ decoded }) {
  const { step, temperature, tgt_in, draw } = state;
  const logits = decoded.logits[step];
  const probabilities = shares_at(logits, temperature);
  const best = largest_first(logits);
  $("next-title").textContent = `The ${N_SHOWN} most probable tokens of ${logits.length} for the selected step`;
  let n = 0;
  for (let sum = 0; sum < 0.9 && n < logits.length; n++) sum += probabilities[best[n]];
  const again = is_finished() ? "press Write again to draw all of them" : "Next token and To the end draw";
  $("temperature-shown").textContent = number(temperature, 1);
  $("temperature-text").textContent = "Probability = softmax(logits / temperature). A higher temperature spreads it over more " +
    "tokens: here " +
    `${n === 1 ? "one alone has" : `${n} together have`} at least 90 %. ` +
    (draw ? `What is written stays. From now on tokens are drawn at random: ${again}. `
      : "Next token writes the most probable one, the same at every temperature. ") + "Elsewhere on the page, probabilities are at temperature 1.";
  const rows = best.slice(0, N_SHOWN).map((id) => {
    const button = pressable(() => {
      write([...tgt_in.slice(0, step + 1), id], true);
      $("distribution").querySelector("button:enabled").focus({ preventScroll: true });
    }, { disabled: id === PAD, "aria-label": `take ${token(id)}` }, token(id));
    const bar = element("div", { class: "bar", style: `width: ${(100 * probabilities[id]).toFixed(2)}%` });
    const shown = [button, number(logits[id], 3), number(probabilities[id]), bar];
    return element("tr", {}, ...shown.map((content) => element("td", {}, content)));
  });
  $("distribution").tBodies[0].replaceChildren(...rows);
  const tokens = [...state.src, ...tgt_in, ...best.slice(0, N_SHOWN)].map(token);
  const signs = Object.entries(SIGNS).filter(([sign]) => tokens.some((name) => name.includes(sign)));
  $("signs").textContent = "id: its row in the table of embeddings; p: its probability; " +
    ($("target").querySelector(".wrong") ? "thick red border: the first letter that differs; " : "") +
    signs.map(([sign, text]) => `${sign}: ${text}`).join("; ");
}

// -- events -----------------------------------------------------------------------------------------------------------

function show_model(name) {
  choose_model(name);
  const { content } = chosen(name);
  const { about, model, tokens } = content;
  document.querySelector(`[name=model][value=${name}]`).checked = true;
  $("text-title").textContent = task().title;
  $("hint").replaceChildren(`${task().hint} Try: `, ...task().known.flatMap((text, i) =>
    [i ? " or " : "", pressable(() => show_text(text), {}, text)]));
  $("about").textContent = `${count(about.n_parameters)} parameters, width D = ${model.d_model}, encoder and decoder of ` +
    `${model.n_layers} layers with ${model.n_heads} heads each, vocabulary of ${tokens.length} tokens. ${task().skill(about)}`;
  const groups = { "": task().examples ?? [] };
  for (const { text, translation, reference } of content.examples ?? []) {
    (groups[translation === reference ? "translated as in the data set" : "translated differently"] ??= []).push(text);
  }
  const options = Object.entries(groups).map(([label, texts]) =>
    [label, texts.map((text) => element("option", {}, text))]);
  $("examples").replaceChildren(element("option", { value: "", hidden: true }, "your own text"), ...options.flatMap(([label, nodes]) =>
    (label ? [element("optgroup", { label }, ...nodes)] : nodes)));
}

/** Take the sentence of the guide away that stands below the page. */
function leave() {
  for (const node of document.querySelectorAll(".pointed")) node.classList.remove("pointed");
  $("guide-bar").hidden = true;
}

let last_read; // what the field of the text held when it was last read

function show_text(text) {
  last_read = text;
  leave(); // it speaks of another text
  if ($("text").value !== text) $("text").value = text;
  $("examples").value = text;
  if ($("examples").selectedIndex < 0) $("examples").value = ""; // it is one's own
  $("message").textContent = choose_text(text);
  write_address();
}

function write_address() {
  const parts = new URLSearchParams({ model: state.name, text: state.text });
  if (without.heads.length) parts.set("without", without.heads.join(" "));
  const address = `#${parts}`;
  if (location.hash !== address) history.replaceState(null, "", address);
}

/** Show what the address asks for. Others may have written it: names are looked up in the tables of the page alone. */
function read_address() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const name = Object.hasOwn(MODELS, parts.get("model")) ? parts.get("model") : "en-fr";
  show_model(name);
  const names = parts.get("without");
  const asked = names ? names.split(" ") : [];
  const heads = heads_among(asked);
  show_text(source_of(name, parts.get("text") ?? "").length ? parts.get("text") : $("examples").options[1].value);
  leave_out(heads);
  if (heads.length) unfold($("without-heads"));
  if (!asked.every((name) => heads.includes(name))) {
    $("message").textContent = "The address names heads that this model does not have; they are left away.";
  }
}

for (const radio of document.querySelectorAll("[name=model]")) {
  radio.disabled = !MODELS[radio.value];
  radio.addEventListener("change", () => {
    show_model(radio.value);
    show_text($("examples").options[1].value);
  });
}
let typing; // a timer, as a long text takes a while
function read_text() {
  clearTimeout(typing);
  show_text($("text").value);
}
$("text").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(read_text, 300);
});
$("text").addEventListener("change", () => { // when it loses the focus, too
  if ($("text").value !== last_read) read_text(); // else the button that is being pressed would be replaced, and the click lost
});
$("text").addEventListener("keydown", (event) => event.key === "Enter" && read_text());
$("examples").addEventListener("change", (event) => show_text(event.target.value));
$("temperature").addEventListener("input", (event) => {
  state.temperature = Number(event.target.value);
  show();
});
$("draw").addEventListener("change", (event) => {
  state.draw = event.target.checked;
  show();
});

/** A disabled button loses the focus: give it to the other one. */
function on_click(id, other, act) {
  $(id).addEventListener("click", () => {
    act();
    if ($(id).disabled) $(other).focus({ preventScroll: true });
  });
}
on_click("begin", "next", () => write([BOS]));
on_click("back", "next", () => write(state.tgt_in.slice(0, -1)));
on_click("next", "back", () => {
  take(1);
  write(state.tgt_in);
});
on_click("end", "begin", take_all);
window.addEventListener("hashchange", read_address);

Object.assign($("temperature"), { value: 1 });
$("draw").checked = false;
read_address();
