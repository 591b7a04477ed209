"use strict";
// What the page says of an output: whether it is right, where it first goes wrong, and what one may learn from it.

/** The output that is right as far as the page knows, or undefined. @returns {string | undefined} */
function wanted() {
  const { content, vocabulary } = chosen(state.name);
  if (!content.examples) return vocabulary.decode([...state.src].reverse());
  return content.examples.find(({ text }) => text === state.text)?.reference;
}

/** The first step that leaves what is wanted, or -1. */
function first_wrong() {
  const right = wanted();
  if (right === undefined) return -1;
  return state.tgt_in.slice(1).findIndex((id, t) => {
    const text = chosen(state.name).vocabulary.decode(state.tgt_in.slice(0, t + 2));
    return id === EOS ? text !== right : !right.startsWith(text);
  });
}

/** Where two texts part: how much they share, and the next letter or word of each, "" if there is none. */
function parting(text, right) {
  let n = 0;
  while (n < Math.min(text.length, right.length) && text[n] === right[n]) n++;
  if (state.name === "reverse") return [n, text[n] ?? "", right[n] ?? ""];
  const is_between = [text, right].every((line) => " ".startsWith(line[n] ?? ""));
  const begin = is_between ? n : text.lastIndexOf(" ", n - 1) + 1;
  return [n, ...[text, right].map((line) => line.slice(begin).trim().split(" ")[0])];
}

/** Is the output right, as far as it is written? */
function verdict() {
  const { vocabulary } = chosen(state.name);
  const [source, text, right] = [vocabulary.decode(state.src), vocabulary.decode(state.tgt_in), wanted()];
  const has_ended = state.tgt_in.at(-1) === EOS;
  const stopped = is_finished() && !has_ended ? ` The page stops after ${state.tgt_in.length - 1} tokens without an end.` : "";
  if (right === undefined) {
    return `No translation of this text is stored, so the page cannot say what is right.${stopped}`;
  }
  const is_reverse = state.name === "reverse";
  if (has_ended && text === right) {
    return is_reverse ? `Right: ‘${text}’ is ‘${source}’ backwards.` : "Right: a person translated it into the same words.";
  }
  if (!has_ended && right.startsWith(text)) {
    if (!is_reverse) return `${text ? "So far the same words as a person's" : "A person's"} translation: “${right}”`;
    if (text === right) return "All letters are right. The end is missing.";
    return text ? `Right so far. Missing: ‘${right.slice(text.length)}’.` : `It should write ‘${right}’.`;
  }
  const [n, here, there] = parting(text, right);
  if (is_reverse) {
    const first = here ? `letter ${n + 1} is ‘${here}’` : `it ends after ${n} of ${right.length} letters`;
    const instead = there ? `${here ? "instead of" : "; next should come"} ‘${there}’` : "and should not be there";
    return `Wrong: ${first}${here ? " " : ""}${instead}. ‘${source}’ backwards is ‘${right}’.${stopped}`;
  }
  const first = !here ? `it ends where the person goes on with ‘${there}’`
    : there ? `the first other word is ‘${here}’ instead of ‘${there}’` : `it goes on with ‘${here}’ where the person ends`;
  return `Not a person's translation, “${right}”: ${first}. Other words can be right, too.${stopped}`;
}

/** What to learn from this text. */
function lesson(shares) {
  const { content, vocabulary } = chosen(state.name);
  const { max_len, n_sentences } = content.about;
  const parts = [];
  const rare = Object.entries(content.examples?.find(({ text }) => text === state.text)?.rare ?? {});
  if (rare.length) {
    const seen = rare.map(([word, n]) => `${n} have ‘${word}’`).join(", ");
    parts.push(`Of the ${count(n_sentences)} sentences of its training, ${seen}.`);
  }
  if (state.src.length > max_len) {
    parts.push(`This word has ${state.src.length} letters, and no word of the training had more than ${max_len}: the model ` +
      "does not know the positions after that.");
  }
  const cut = vocabulary.words?.(state.src).filter((pieces) => pieces.length > 2) ?? [];
  if (cut.length) {
    parts.push(`Cut into small parts: ${cut.map((pieces) => pieces.join("·")).join(", ")}. A word that was frequent in the ` +
      "training is one token; for a rare one the model has seen too little to know what its parts mean together.");
  }
  const unsure = shares.filter((share) => share < UNSURE).length;
  if (unsure) {
    const worst = largest_first(shares).at(-1);
    parts.push(`Unsure (a dashed border: p below ${UNSURE}) at ${unsure} of ${shares.length} tokens, most at ` +
      `${told(state.tgt_in[worst + 1])}.`);
  } else if (shares.length) {
    const but = wanted() === undefined || (first_wrong() >= 0 && content.examples) ? ", which does not say that it is right"
      : first_wrong() >= 0 ? ", and yet not all are right" : "";
    parts.push(`Each token has p of ${UNSURE} or more${but}.`);
  }
  return parts.join(" ");
}
