"use strict";
// Leaving out heads: what the model writes without them, and which head a text needs most.

const STACKS = { encoder: "encoder", decoder: "decoder", memory: "decoder" }; // kind of attention -> whose parameters it has

const without = {
  heads: [], // the names of the heads that are left out
  text: "", // the model, the text and what is hidden
  key: "", // the same, and what is measured: everything below was computed for these
  guess: "", // the name of the head that the reader thinks is needed most
  own: null, // the output with all heads for the text of the page
  effects: new Map(), // name of a head -> {changed, of, loss}: what happens if it alone is left out
  is_asked: false, // whether the reader wants the effect of every head
  is_of_examples: false, // whether it is measured with all examples, or with the text of the page
};

/** Every head of the model, in the order of the table. @returns {{name, kind, layer, head}[][]} one list for each attention */
function all_heads() {
  const { n_layers, n_heads } = chosen(state.name).model;
  const layers = Array.from({ length: n_layers }, (_, layer) => layer);
  return Object.keys(STACKS).flatMap((kind) => layers.map((layer) => Array.from({ length: n_heads }, (_, head) => (
    { name: `${kind}.${layer}.${head}`, kind, layer, head }))));
}

const ATTENTION_NAMES = {
  encoder: "self-attention of the encoder", decoder: "self-attention of the decoder", memory: "cross-attention",
};
const told_head = ({ kind, layer, head }) => `head ${head + 1} of the ${ATTENTION_NAMES[kind]}, layer ${layer + 1}`;

/** Go on with a target, each time with the most probable token, to its end. @param {number[]} tgt (T) @returns {number[]} */
function written_on(model, memory, keep, tgt) {
  const ids = [...tgt];
  while (ids.at(-1) !== EOS && ids.length <= task().limit(memory.length)) {
    const { x } = model.decode(memory, ids, keep);
    ids.push(greedy(model.logits([x.at(-1)])[0]));
  }
  return ids;
}

/**
 * What the model writes without some heads.
 * @param {string[]} names of the heads
 * @param {number[]} src (S)
 * @param {number[]} hidden places of the source
 * @param {number[]} [tgt] what it writes with all heads; if not given, it is what it writes now
 * @returns {{ids, tgt, loss, decoded, encoded}} loss: the mean of −log p of the tokens of tgt
 */
function output_without(names, src, hidden, tgt) {
  const heads = all_heads().flat().filter(({ name }) => names.includes(name));
  const model = chosen(state.name).model.without_heads(heads.map(({ kind, layer, head }) => (
    { stack: STACKS[kind], layer, name: SUBLAYERS[kind], head })));
  const keep = src.map((_, s) => !hidden.includes(s));
  const encoded = model.encode(src, keep);
  tgt ??= written_on(model, encoded.memory, keep, [BOS]);
  const decoded = model.decode(encoded.memory, tgt.slice(0, -1), keep);
  const logits = model.logits(decoded.x);
  const losses = logits.map((row, t) => -Math.log(softmax(row)[tgt[t + 1]]));
  const first = logits.findIndex((row, t) => greedy(row) !== tgt[t + 1]); // up to here it writes the same
  const ids = first < 0 ? tgt : written_on(model, encoded.memory, keep, [...tgt.slice(0, first + 1), greedy(logits[first])]);
  return { ids, tgt, loss: losses.reduce((sum, x) => sum + x, 0) / losses.length, encoded, decoded };
}

const text_of = (ids) => named(chosen(state.name).vocabulary.decode(ids));
/** What is counted: letters of a word, words of a sentence. */
const unit = () => (state.name === "reverse" ? "letter" : "word");
const units_of = (text) => (unit() === "letter" ? [...text] : words_of(text));
const counted = (n) => `${n} ${unit()}${n === 1 ? "" : "s"}`;
/** The fewest changes that make an output of that of the whole model. */
const changed_units = ({ ids, tgt }) => changes(units_of(text_of(ids)), units_of(text_of(tgt)), false);

/** The texts with which each head is measured, and the places that are hidden there. @returns {[number[], number[]][]} */
function measured_texts() {
  if (!without.is_of_examples) return [[state.src, state.hidden]];
  return [...$("examples").options].filter(({ value }) => value).map(({ value }) => [source_of(state.name, value), []]);
}

/** Leave out one head after the other; after each text it pauses. */
function* measurements() {
  const texts = [];
  for (const [src, hidden] of measured_texts()) {
    texts.push({ src, hidden, whole: output_without([], src, hidden) });
    yield;
  }
  for (const { name } of all_heads().flat()) {
    const effect = { changed: 0, of: 0, loss: 0 };
    let n_tokens = 0;
    for (const { src, hidden, whole } of texts) {
      const output = output_without([name], src, hidden, whole.ids);
      effect.changed += changed_units(output).length;
      effect.of += units_of(text_of(whole.ids)).length;
      effect.loss += (output.loss - whole.loss) * (whole.ids.length - 1);
      n_tokens += whole.ids.length - 1;
      yield;
    }
    effect.loss /= n_tokens;
    without.effects.set(name, effect);
    show_effects();
  }
}

/** Measure each head, in many short tasks, so that the page still answers. */
function measure_each() {
  const { key } = without;
  const parts = measurements();
  const go_on = () => {
    if (without.key === key && !parts.next().done) setTimeout(go_on);
  };
  setTimeout(go_on);
}

/** Leave out these heads, and no others. @param {string[]} names */
function leave_out(names) {
  without.heads = names;
  show_effects();
  show_outputs();
  write_address();
}

/** Those of these names that are heads of the model. @param {string[]} names */
function heads_among(names) {
  return all_heads().flat().map(({ name }) => name).filter((name) => names.includes(name));
}

function toggle_head(name) {
  leave_out(without.heads.includes(name) ? without.heads.filter((other) => other !== name) : [...without.heads, name]);
}

/** Everything of this part of the page, if the text is another one. */
function show_without() {
  const text = JSON.stringify([state.name, state.src, state.hidden]);
  const key = JSON.stringify([text, without.is_of_examples]);
  if (without.key === key) return;
  if (without.text !== text && !without.is_of_examples) { // the answer for another text waits for a guess
    Object.assign(without, { guess: "", is_asked: false });
  }
  const heads = heads_among(without.heads); // the other model has others
  const own = output_without([], state.src, state.hidden);
  Object.assign(without, { text, key, own, heads, guess: heads_among([without.guess])[0] ?? "", effects: new Map() });
  make_table();
  make_guesses();
  show_effects();
  show_outputs();
  if (without.is_asked) measure_each();
}

/** The weights of a head for the text of the page. */
function weights_of({ kind, layer, head }) {
  const { encoded, decoded } = without.own;
  const { [SUBLAYERS[kind]]: attention } = (kind === "encoder" ? encoded : decoded).layers[layer];
  return attention.heads[head].weights;
}

function make_table() {
  const table = $("without-heads");
  const rows = all_heads();
  table.tHead.replaceChildren(element("tr", {}, element("td"), ...rows[0].map((_, h) => element("th", { scope: "col" }, `head ${h + 1}`))));
  table.tBodies[0].replaceChildren(...rows.map((heads) => {
    const [{ kind, layer }] = heads;
    const name = element("th", { scope: "row" }, kind === "memory" ? "Cross-attention" : "Self-attention",
      element("small", {}, `${STACKS[kind]}, layer ${layer + 1}`));
    const buttons = heads.map((head) => pressable(() => toggle_head(head.name), { id: `without-${head.name}` },
      small_map(weights_of(head)), element("span")));
    return element("tr", {}, name, ...buttons.map((button) => element("td", {}, button)));
  }));
}

/** The list from which the reader guesses. */
function make_guesses() {
  const option = ({ name, kind, layer, head }) => element("option", { value: name }, told_head({ kind, layer, head }));
  $("guessed-head").replaceChildren(element("option", { value: "" }, "none"), ...all_heads().flat().map(option));
  $("guessed-head").value = without.guess;
}

/** The numbers in the table, and what they say. */
function show_effects() {
  const heads = all_heads().flat();
  const { effects, is_asked } = without;
  const peak = Math.max(0.01, ...[...effects.values()].map(({ loss }) => Math.abs(loss)));
  for (const head of heads) {
    const node = $(`without-${head.name}`);
    const { changed, loss } = effects.get(head.name) ?? {};
    const is_known = loss !== undefined;
    const is_out = without.heads.includes(head.name);
    node.lastChild.replaceChildren(element("b", {}, !is_known ? is_out ? "out" : "in" : changed ? counted(changed) : "same"),
      head.name === without.guess ? element("small", {}, "my guess") : "", is_known ? element("small", {}, with_sign(loss)) : "");
    node.setAttribute("aria-pressed", String(is_out));
    node.setAttribute("aria-label", `leave out ${told_head(head)}${is_known
      ? `: ${changed ? `${counted(changed)} changed` : "the same text"}, loss ${with_sign(loss)}` : ""}`);
    node.classList.toggle("minus", loss < 0);
    node.style.setProperty("--tint", is_known ? ((60 * Math.abs(loss)) / peak).toFixed(1) : "0");
  }
  const is_done = effects.size === heads.length;
  const idle = is_done ? heads.filter(({ name }) => effects.get(name).changed === 0).map(({ name }) => name) : [];
  $("each").setAttribute("aria-disabled", String(is_asked));
  $("each").textContent = !is_asked ? "Leave out each head in turn"
    : is_done ? "Each head was left out in turn" : `Leaving out head ${effects.size + 1} of ${heads.length} …`;
  $("idle").hidden = idle.length < 2;
  $("idle").textContent = `Leave out all ${idle.length} that change no ${unit()} alone`;
  $("idle").onclick = () => leave_out(idle);
  $("guessed-head").disabled = is_asked; // one more guess would know the answer
  const [result, judged] = is_done ? told_guess(heads) : ["", ""];
  const texts = { "guess-result": result, "guess-text": judged, "each-text": is_done ? told_effects(heads, idle) : "" };
  for (const [id, text] of Object.entries(texts)) {
    if ($(id).textContent !== text) $(id).textContent = text; // a status is read out when it is written
  }
  $("without-key").textContent = !is_asked ? "Each picture is a head’s weights for this text: rows ask, columns are read."
    : `Each number is of one head left out alone, ${without.is_of_examples ? "over all examples" : "for this text"}. First line: ` +
      `how many ${unit()}s of the output change${unit() === "word" ? " (signs and capital letters do not count)" : ""}. Second ` +
      "line: how much the loss changes. The loss is the mean of −log p over the tokens that the model writes with all heads. " +
      "Red: it rises; blue: it falls. A word that changes is another word, and not always a worse one. The pictures are the " +
      "weights for this text.";
}

/** A change with its sign, if it is not rounded to 0. */
function with_sign(x) {
  const text = number(x, 2);
  return x > 0 && text !== "0.00" ? `+${text}` : text;
}

/** What happens if a head alone is left out; undefined until it is measured. */
const effect_without = ({ name }) => without.effects.get(name);

/** The heads, the one that is needed most first: by what changes without each, and then by the loss. */
function needed_first(heads) {
  return [...heads].sort((a, b) => {
    const [here, there] = [effect_without(a), effect_without(b)];
    return there.changed - here.changed || there.loss - here.loss;
  });
}

/** Whether the reader's guess was right, and by how much. @returns {[string, string]} the result, and the numbers */
function told_guess(heads) {
  const order = needed_first(heads);
  const rank = order.findIndex(({ name }) => name === without.guess);
  if (rank < 0) return ["", ""];
  const [most, second] = order;
  if (rank === 0) {
    const { changed, of, loss } = effect_without(second);
    return ["✓ Your guess was right.", `Without the head that comes next, ${told_head(second)}, ${changed} of ${of} ${unit()}s ` +
      `change, and the loss changes by ${with_sign(loss)}.`];
  }
  const { changed, of, loss } = effect_without(order[rank]);
  const fewer = effect_without(most).changed - changed;
  const smaller = effect_without(most).loss - loss; // below 0 if the loss rises most without another one
  const result = fewer ? "✗ Your guess was not right." : `Your guess was nearly right: as many ${unit()}s change as without the first.`;
  return [result, `It is number ${rank + 1} of ${heads.length}. Without it, ${changed} of ${of} ${unit()}s change` +
    `${fewer ? `, ${fewer} fewer than without the first,` : ","} and the loss changes by ${with_sign(loss)}, ` +
    `${number(Math.abs(smaller), 2)} ${smaller < 0 ? "more" : "less"} than without the first.`];
}

/** Which head is needed most, and how many are not needed. */
function told_effects(heads, idle) {
  const [most] = needed_first(heads);
  const { changed, of, loss } = effect_without(most);
  if (!changed) return `No head alone is needed: without any one of the ${heads.length}, the same ${unit()}s are written.`;
  const by_loss = heads.reduce((a, b) => (effect_without(b).loss > effect_without(a).loss ? b : a));
  const other = by_loss === most ? "" : ` The loss rises most without ${told_head(by_loss)}: by ${number(effect_without(by_loss).loss, 2)}.`;
  const others = idle.length ? ` ${idle.length} of the ${heads.length} heads change no ${unit()} when they are left out alone. They ` +
    "may still do something: another head can do the same, so that one of the two is enough." : "";
  return `Most ${unit()}s change without ${told_head(most)}: ${changed} of ${of}. The loss ${loss < 0 ? "falls" : "rises"} by ` +
    `${number(Math.abs(loss), 2)}.${other}${others}`;
}

/** A text, in which some of its words or letters are marked. @param {number[]} places */
function marked(text, places) {
  const nodes = [];
  let end = 0;
  [...text.matchAll(unit() === "letter" ? /./gu : ONE_WORD)].forEach((match, i) => {
    if (!places.includes(i)) return;
    nodes.push(text.slice(end, match.index), element("mark", {}, match[0]));
    end = match.index + match[0].length;
  });
  return [...nodes, text.slice(end)];
}

/** What is written with all heads, and without those that are left out. */
function show_outputs() {
  const heads = all_heads().flat().filter(({ name }) => without.heads.includes(name));
  const { own } = without;
  const told_end = (ids) => (ids.at(-1) === EOS ? "" : " …");
  const line = (title, ...content) => element("div", {}, element("h3", {}, title), ...content);
  const said = (...content) => element("p", { class: "said" }, ...content);
  const with_all = (...content) => line("With all heads", said(...content, told_end(own.ids)));
  $("all-heads").hidden = !heads.length;
  if (!heads.length) {
    $("without-said").replaceChildren(with_all(text_of(own.ids)), line("Without …", element("p", { class: "small" }, "Press a head in the table.")));
    return;
  }
  const output = output_without(without.heads, state.src, state.hidden, own.ids);
  const found = changed_units(output);
  const text = text_of(output.ids);
  const changed = found.filter(([here]) => here).map(([, , place]) => place);
  const lost = found.filter(([, there]) => there).map(([, , , place]) => place);
  const title = heads.length === 1 ? `Without ${told_head(heads[0])}` : `Without ${heads.length} heads`;
  const loss = `Loss of the first text: ${number(own.loss, 2)} with all heads, ${number(output.loss, 2)} now.`;
  $("without-said").replaceChildren(with_all(...marked(text_of(own.ids), lost)), line(title,
    said(...(text ? marked(text, changed) : ["(nothing)"]), told_end(output.ids)),
    element("p", { class: "small" }, `${told_difference(found)} ${loss} `,
      ...(heads.length === 1 ? [pressable(() => see_head(heads[0]), {}, "See where it looks")] : []))));
}

/** What differs, in a sentence. */
function told_difference(found) {
  if (!found.length) return `The same ${unit()}s.`;
  const told = found.slice(0, 4).map(([here, there]) => (!here ? `‘${there}’ is missing`
    : there ? `‘${here}’ instead of ‘${there}’` : `‘${here}’ is added`));
  const rest = found.length - told.length;
  return `${counted(found.length)} changed: ${told.join(", ")}${rest ? `, and ${rest} more` : ""}.`;
}

/** Show the attention of a head further up. */
function see_head({ kind, layer, head }) {
  Object.assign(state, { kind, layer, head, side: kind === "encoder" ? "source" : "target", key: undefined });
  show();
  unfold($("part"));
  $("part").scrollIntoView();
  $("heads").children[head].focus({ preventScroll: true });
}

$("guessed-head").addEventListener("change", (event) => {
  without.guess = event.target.value;
  show_effects();
});
$("each").addEventListener("click", () => {
  if (without.is_asked) return;
  without.is_asked = true;
  show_effects();
  measure_each();
});
for (const radio of document.querySelectorAll("[name=measured]")) {
  radio.addEventListener("change", () => {
    without.is_of_examples = radio.value === "examples";
    without.is_asked = true;
    show_without();
  });
}
$("all-heads").addEventListener("click", () => {
  const [first] = without.heads;
  leave_out([]);
  $(`without-${first}`).focus({ preventScroll: true }); // the button is gone
});
