"use strict";
// The first thing to read: one translation, sentence by sentence, beside a picture of where its steps look.

const GUIDE = { source: FIRST, before: "jouet", word: "jaune", read: "yellow", near: "toy" };

/** The example of the guide, whatever the page shows: its tokens as they are shown, and what was computed. */
function guided() {
  const { model, vocabulary } = chosen("en-fr");
  const src = source_of("en-fr", GUIDE.source);
  const { memory } = model.encode(src);
  const tgt = [BOS];
  while (tgt.at(-1) !== EOS) tgt.push(greedy(model.logits(model.decode(memory, tgt).x.slice(-1))[0]));
  const { heads, decoded } = trace("en-fr", src, tgt.slice(0, -1));
  const [cols, written] = [src, tgt.slice(1)].map((ids) => ids.map((id) => vocabulary.shown(id)));
  const step = written.indexOf(GUIDE.word);
  const last = heads.memory.length - 1;
  const outside = written.indexOf("dehors");
  /** The probability of the token that a step writes: as it is, and from another vector. */
  const both = (t, x) => [decoded.x[t], x].map((each) => shares_at(model.logits([each])[0])[tgt[t + 1]]);
  /** The vector of a step, without what a sublayer of the decoder adds to it. */
  const vector = (t, memory, left_out) => model.decode(memory, tgt.slice(0, t + 1), undefined, left_out).x.at(-1);
  const other = model.encode(src, undefined, { layer: last, name: SUBLAYERS.encoder }).memory;
  const shares = {
    word: both(step, vector(step, memory, { layer: last, name: SUBLAYERS.memory })),
    outside: both(outside, vector(outside, other)),
  };
  return { cols, written, heads, weights: mean_of(heads.memory.at(-1)), step, at: cols.indexOf(GUIDE.read), shares };
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
    "<figcaption>Left what is read, right what is written. The wider a line, the more the step that writes a token looks there " +
    "(in the last layer, the mean of its heads). ↑: the next word begins with a capital letter.</figcaption>";
  return figure;
}

/** What is said, in order: {text, box or place on the page that it speaks of}, of another example if it has a source. */
function sentences({ heads, weights, step, at, cols, shares }) {
  const { model } = chosen("en-fr");
  const n_heads = heads.memory[0].length;
  const last = { kind: "memory", side: "target", layer: heads.memory.length - 1 };
  const own = heads.encoder[0].map((head) => head.weights[at][cols.indexOf(GUIDE.near)]);
  const near = largest_first(own)[0];
  const mean = own.reduce((sum, x) => sum + x, 0) / n_heads;
  return [
    { title: "Tokens.", box: { kind: "embedding", side: "source", layer: 0 }, row: at, text: "The sentence is cut into tokens: " +
      `words, parts of words and signs. Each becomes a vector of ${model.d_model} numbers, its row in a table. Attention knows ` +
      "no order: without the numbers for its position that are added to each vector, ‘dog bites man’ and ‘man bites dog’ would " +
      "be the same." },
    { title: "The encoder", box: { kind: "encoder", side: "source", layer: 0 }, row: at, head: near, text: "reads all tokens at " +
      "once. In a layer, each token first looks at the others (this is attention) and adds something of them to its own " +
      `vector. Here, in head ${near + 1} of ${n_heads}, ‘${GUIDE.read}’ gives ${percent(own[near])} of its attention to ` +
      `‘${GUIDE.near}’ (${percent(mean)} in the mean of the heads). So the vector of a word can depend on its neighbours. ` +
      `For ‘${GUIDE.read}’ this matters little; but without the attention of the second layer, ‘dehors’ (outside) would have a ` +
      "probability of " +
      `${number(shares.outside[1], 2)} instead of ${number(shares.outside[0], 2)}.` },
    { title: "The decoder", place: "target", text: "writes one token in each step. It reads what it has written so far, and what " +
      `the encoder made of the source. Look at the step after ‘${GUIDE.before}’ (${GUIDE.near}): what comes next?` },
    { title: "What is written", box: { kind: "decoder", side: "target", layer: 0 }, text: "is read first: each target token attends " +
      "to itself and to those before it. Those after it are masked (hatched), as they are what the model has to predict." },
    { title: "Attention to the source", box: last, text: "looks for the answer. The vector of the step becomes a query: what is looked " +
      "for. Each source token has a key, by which it is found, and a value, which it hands over. The better query and key fit, " +
      `the more of the value is taken: ${percent(weights[step][at])} from ‘${GUIDE.read}’, in the mean of the heads.` },
    { title: "Heads and layers.", box: { ...last, layer: 0 }, text: `${n_heads} heads do this at once, each with queries, keys and ` +
      "values of its own, so that a step can look at several places for several reasons; and there are " +
      `${heads.memory.length} layers, so that the second can ask about what the first found.` },
    { title: "What is found is added", box: last, text: "to the vector of the step. Without what this attention adds in the last " +
      `layer, ‘${GUIDE.word}’ would have a probability of ${number(shares.word[1], 2)} instead of ` +
      `${number(shares.word[0], 2)}.` },
    { title: "Feed-forward", box: { kind: "feed_forward", side: "target", layer: 0 }, source: "Two dogs run on the beach.",
      word: "courent", text: "networks stand between. Attention mixes the vectors of different tokens; two matrices with a ReLU " +
      "between them compute something new from each vector alone. In this sentence they matter little; in “Two dogs run on the " +
      "beach.” the decoder would write ‘chiens’ (dogs) twice without the first of them, in place of ‘courent’ (run)." },
    { title: "The output", box: { kind: "output", side: "target", layer: 0 }, text: "compares the vector with the row of every token " +
      `in the table. The best match, ‘${GUIDE.word}’, is written, and read in the next step, until ‘<end>’ is the most ` +
      "probable. The table and all matrices were learned from pairs of sentences." },
  ];
}

/** Bring an example of the guide back, and what a sentence speaks of into sight, beside the sentence. */
function point_to(list, i) {
  const { title, text, place, box, row, head, source = GUIDE.source, word = GUIDE.word } = list[i];
  if (state.name !== "en-fr" || state.text !== source || state.hidden.length || !state.is_own) {
    set_try({ model: "en-fr", text: source, set: () => {} });
  }
  take_all();
  choose_step(step_of(word), "of which the first part of the page speaks");
  Object.assign(state, { row, ...(head === undefined ? {} : { head }) });
  if (box) Object.assign(state, box);
  show();
  leave();
  const back = pressable(() => {
    leave();
    $("guide").querySelectorAll("li button")[i].focus({ preventScroll: true });
    $("guide").scrollIntoView();
  }, {}, "Close, back to the text");
  const next = pressable(() => point_to(list, i + 1), {}, "Next");
  $("guide-bar").replaceChildren(element("p", {}, element("b", {}, `${i + 1}. ${title}`), ` ${text}`),
    element("div", {}, ...(i + 1 < list.length ? [next] : []), back));
  $("guide-bar").hidden = false;
  const node = $(box ? key_of(box) : place);
  unfold(node);
  node.classList.add("pointed");
  (box ? $("part") : node.parentNode).scrollIntoView({ block: box ? "start" : "center" });
  (i + 1 < list.length ? next : back).focus({ preventScroll: true });
}

function show_guide() {
  const found = guided();
  const list = sentences(found);
  $("guide").append(links(found), element("ol", {}, ...list.map(({ title, text }, i) =>
    element("li", {}, element("b", {}, title), element("span", {}, ` ${text}`), " ",
      pressable(() => point_to(list, i), { "aria-label": `Show: ${title}` }, "show")))));
}
show_guide();
