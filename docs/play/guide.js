"use strict";
// The first thing to read: one translation, sentence by sentence, beside a picture of where its steps look.

const GUIDE = { source: FIRST, before: "jouet", word: "jaune", read: "yellow", near: "toy" };

/** The example of the guide, whatever the page shows: its tokens as they are shown, and what was computed. */
function guided() {
  const { vocabulary } = chosen("en-fr");
  const src = source_of("en-fr", GUIDE.source);
  const tgt = [BOS];
  while (tgt.at(-1) !== EOS) tgt.push(greedy(trace("en-fr", src, tgt).decoded.logits.at(-1)));
  const { heads, encoded, decoded } = trace("en-fr", src, tgt.slice(0, -1));
  const [cols, written] = [src, tgt.slice(1)].map((ids) => ids.map((id) => vocabulary.shown(id)));
  const step = written.indexOf(GUIDE.word);
  const last = { layer: heads.memory.length - 1, name: SUBLAYERS.memory };
  const { model } = chosen("en-fr");
  const { x } = model.decode(encoded.memory, tgt.slice(0, step + 1), src.map(() => true), last);
  const [share, left] = [decoded.logits[step], model.logits([x.at(-1)])[0]].map((row) => shares_at(row)[tgt[step + 1]]);
  return { cols, written, heads, weights: mean_of(heads.memory.at(-1)), step, at: cols.indexOf(GUIDE.read), share, left };
}

/** Source and target tokens in two columns; the wider a line, the more a step that wrote a token looks at a source token. */
function links({ cols, written, weights, step, at }) {
  const [height, left, right] = [22, 92, 208];
  const y = (i) => 14 + height * i;
  const line = (t, s) => `<line x1="${left}" y1="${y(s)}" x2="${right}" y2="${y(t)}" ` +
    `stroke-width="${(7 * weights[t][s]).toFixed(1)}" class="${t === step && s === at ? "told" : ""}"/>`;
  const text = (names, x, end, told) => names.map((name, i) =>
    `<text x="${x}" y="${y(i) + 4}" text-anchor="${end}" class="${i === told ? "told" : ""}">${escaped(name)}</text>`);
  const lines = weights.flatMap((row, t) => row.map((weight, s) => (weight < 0.1 ? "" : line(t, s))));
  const label = `${written[step]} looks at ${cols[at]}, ${percent(weights[step][at])}`;
  const figure = element("figure", { class: "links" });
  figure.innerHTML = `<svg viewBox="0 0 300 ${y(Math.max(cols.length, written.length)) - 6}" role="img" ` +
    `aria-label="Where each token was read: ${escaped(label)}">${lines.join("")}` +
    `${text(cols, left - 6, "end", at).join("")}${text(written, right + 6, "start", step).join("")}</svg>` +
    "<figcaption>Left what is read, right what is written. The wider a line, the more the step that writes a token looks there. " +
    "↑: the next word begins with a capital letter.</figcaption>";
  return figure;
}

/** What is said, in order: {text, box or place on the page that it speaks of}. */
function sentences({ heads, weights, step, at, cols, share, left }) {
  const { model } = chosen("en-fr");
  const own = heads.encoder[0].map((head) => head.weights[at][cols.indexOf(GUIDE.near)]);
  const near = largest_first(own)[0];
  const taken = percent(weights[step][at]);
  return [
    { title: "Tokens.", place: "source", text: `The sentence is cut into tokens: words, parts of words and signs. Each becomes a ` +
      `vector of ${model.d_model} numbers, its row in a table. Attention knows no order: without the numbers for its position ` +
      "that are added to each vector, ‘dog bites man’ and ‘man bites dog’ would be the same." },
    { title: "The encoder", box: { kind: "encoder", side: "source", layer: 0 }, row: at, head: near, text: "reads all tokens at " +
      "once. In a layer, each token first looks at the others (this is attention) and takes something of them into its own " +
      `vector. Here ‘${GUIDE.read}’ gives ${percent(own[near])} of its attention to ‘${GUIDE.near}’ in head ${near + 1}: ` +
      `its vector can now say what is ${GUIDE.read}.` },
    { title: "The decoder", place: "target", text: "writes one token in each step. It reads what it has written so far, and what " +
      `the encoder made of the source. Look at the step after ‘${GUIDE.before}’ (${GUIDE.near}): what comes next?` },
    { title: "Attention", box: { kind: "memory", side: "target", layer: heads.memory.length - 1 }, text: "finds the answer. The " +
      "vector of the step becomes a query: what is looked for. Each source token has a key, what it is found by, and a value, " +
      `what it hands over. The better query and key fit, the more of the value is taken: ${taken} from ‘${GUIDE.read}’.` },
    { title: "Heads and layers.", box: { kind: "memory", side: "target", layer: 0 }, text: `This is done by ` +
      `${heads.memory[0].length} heads at once, each with queries, keys and values of its own, as there is more than one thing ` +
      `to look for; and in ${heads.memory.length} layers, one after the other, so that the second can ask about what the first ` +
      "found." },
    { title: "What is found is added", box: { kind: "memory", side: "target", layer: heads.memory.length - 1 }, text: "to the vector " +
      `of the step. Without what this box adds, ‘${GUIDE.word}’ would have a probability of ${number(left, 2)} instead of ` +
      `${number(share, 2)}.` },
    { title: "Feed-forward", box: { kind: "feed_forward", side: "target", layer: heads.memory.length - 1 }, text: "networks stand " +
      "between. Attention only mixes vectors of different tokens; these two matrices compute something new from each vector, " +
      "alone." },
    { title: "The output", box: { kind: "output", side: "target", layer: 0 }, text: "compares the vector with the row of every token " +
      `in the table. The most similar, ‘${GUIDE.word}’, is written, and read in the next step, until ‘<end>’ is the most ` +
      "probable. Nothing of this was programmed: all numbers were learned from pairs of sentences." },
  ];
}

/** Bring the example of the guide back, and what a sentence speaks of into sight. */
function point_to({ place, box, row, head }, step) {
  if (state.name !== "en-fr" || state.text !== GUIDE.source || state.hidden.length || !state.is_own) {
    set_try({ model: "en-fr", text: GUIDE.source, set: () => {} });
  }
  take_all();
  choose_step(step, "of which the first part of the page speaks");
  Object.assign(state, { row, ...(head === undefined ? {} : { head }) });
  if (box) Object.assign(state, box);
  show();
  for (const node of document.querySelectorAll(".pointed")) node.classList.remove("pointed");
  const node = $(box ? key_of(box) : place);
  node.classList.add("pointed");
  (box ? $("inside-title") : node.parentNode).scrollIntoView({ block: box ? "start" : "center" });
  (box ? node : node.querySelector("button")).focus({ preventScroll: true });
}

function show_guide() {
  const found = guided();
  $("guide").append(links(found), element("ol", {}, ...sentences(found).map((sentence) => {
    const button = element("button", { type: "button", "aria-label": `Show: ${sentence.title}` }, "show");
    button.addEventListener("click", () => point_to(sentence, found.step));
    return element("li", {}, element("b", {}, sentence.title), ` ${sentence.text} `, button);
  })));
}
show_guide();
