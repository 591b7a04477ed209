"use strict";
// What the page says of an output: whether it is right, where it first goes wrong, and what one may learn from it.

const CORRECT = new Map(Object.entries({ // translations of sentences of this page that are in no data
  "A cat and a dog.": "Un chat et un chien.",
  "A small black dog is running.": "Un petit chien noir court.",
  "A man plays the guitar.": "Un homme joue de la guitare.",
  "Two dogs run on the beach.": "Deux chiens courent sur la plage.",
}));

/** A person's translation in the data of the example that is read. @returns {string | undefined} */
const persons = () => chosen(state.name).content.examples?.find(({ text }) => text === state.text)?.reference;

/** What the output is compared with. */
const whose = () => {
  if (state.name === "reverse") return "the reversed word";
  return persons() ? "the translation in the data set" : "a correct translation";
};

/** The output that is right as far as the page knows, or undefined. @returns {string | undefined} */
function wanted() {
  const { content, vocabulary } = chosen(state.name);
  if (!content.examples) return vocabulary.decode([...state.src].reverse());
  return persons() ?? CORRECT.get(state.text);
}

const LITTLE = new Set("the are was were being has have who which that there".split(" ")); // French has them in other places
let unneeded = {}; // what was found last, as each word takes a computation of its own

/** At most two words of the source such that the same target is written if all of them are hidden. @returns {string[]} */
function words_without_need() {
  const { name, src, tgt_in } = state;
  const key = JSON.stringify([name, src, tgt_in]);
  if (unneeded.key === key) return unneeded.words;
  const words = []; // [name, places]: a word can be several tokens
  src.forEach((id, s) => {
    if (!token(id).startsWith("·")) words.push(["", []]);
    words.at(-1)[0] += token(id).replace("·", "");
    words.at(-1)[1].push(s);
  });
  const all = new Map(); // a word that is there twice is hidden twice
  for (const [word, places] of words) all.set(word, [...(all.get(word) ?? []), ...places]);
  unneeded = { key, words: [] };
  const hidden = [];
  for (const [word, places] of [...all].filter(([word]) => /^\p{L}{3,}$/u.test(word) && !LITTLE.has(word))) {
    const { logits } = trace(name, src, read_tokens(), [...hidden, ...places]).decoded;
    if (!logits.every((row, t) => greedy(row) === tgt_in[t + 1])) continue;
    unneeded.words.push(word);
    hidden.push(...places);
    if (unneeded.words.length === 2) break;
  }
  return unneeded.words;
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

const ONE_WORD = /[\p{L}\p{N}⁇-]+['’]?/gu;
/** The words of a line in lower case, without signs. @returns {string[]} */
const words_of = (line) => line.toLowerCase().match(ONE_WORD) ?? [];

/**
 * The fewest changes that make the wanted words of those written.
 * @param {boolean} is_part whether more is to be written: then nothing is missing at the end, and the last word may be a part
 * @returns {[string, string, number, number][]} a word, the one that is wanted instead ("" for none), and their places
 */
function changes(written, wanted, is_part) {
  const [n, m] = [written.length, wanted.length];
  const fewest = (ways) => ways.reduce((a, b) => (b.length < a.length ? b : a));
  const best = matrix(n + 1, m + 1, () => []); // for the first i and j words
  for (let i = 0; i <= n; i++) {
    for (let j = i ? 0 : 1; j <= m; j++) {
      const [here, there] = [written[i - 1], wanted[j - 1]];
      const is_same = here === there || (is_part && i === n && there?.startsWith(here));
      best[i][j] = fewest([
        ...(i && j ? [[...best[i - 1][j - 1], ...(is_same ? [] : [[here, there, i - 1, j - 1]])]] : []),
        ...(i ? [[...best[i - 1][j], [here, "", i - 1, j - 1]]] : []),
        ...(j ? [[...best[i][j - 1], ["", there, i - 1, j - 1]]] : []),
      ]);
    }
  }
  return is_part ? fewest(best[n].reverse()) : best[n][m]; // rather another word than an added one
}

/** The words of the text in which the reader chose a token. @param {string[]} words those of the text */
function forced_words(words) {
  const { forced, tgt_in } = state;
  const chosen_words = forced.filter((t) => tgt_in[t] > EOS && /[\p{L}\p{N}]/u.test(token(tgt_in[t])));
  return chosen_words.map((t) => words[words_of(chosen(state.name).vocabulary.decode(tgt_in.slice(0, t + 1))).length - 1]);
}

/** Is the output right, as far as it is written? */
function verdict() {
  const { vocabulary } = chosen(state.name);
  const [source, text, right] = [vocabulary.decode(state.src), vocabulary.decode(state.tgt_in), wanted()];
  const has_ended = state.tgt_in.at(-1) === EOS;
  const stopped = is_finished() && !has_ended ? ` The page stops after ${state.tgt_in.length - 1} tokens without an end.` : "";
  if (is_stale()) {
    return "This was written before you changed which tokens are hidden. Press " +
      `${is_finished() ? "Write again" : "Begin again, then To the end,"} to see what the model writes now.`;
  }
  if (right === undefined) {
    return `No translation of this text is stored, so the page cannot say what is right.${stopped}`;
  }
  if (state.name === "reverse") return verdict_of_letters(source, text, right, has_ended) + stopped + told_without();
  return verdict_of_words(text, right, has_ended) + stopped + told_without();
}

/** The words of an own sentence without which the same is written, if the model alone wrote all of the translation. */
function told_unneeded() {
  if (wanted() !== undefined || state.tgt_in.at(-1) !== EOS || state.hidden.length || !state.is_own) return [];
  const [first, second] = words_without_need();
  if (!first) return [];
  const [are, it] = second ? [`and ‘${second}’ are`, "them"] : ["is", "it"];
  return [`The same words are written if ‘${first}’ ${are} hidden. Hide ${it} to see how their probabilities change.`];
}

/** Whether what is hidden now matters for what is written. */
function told_without() {
  if (!state.hidden.length || state.tgt_in.length === 1) return "";
  const none = state.hidden.length === state.src.length ? "any source token" : told_hidden();
  return is_of_now() ? ` It was written without reading ${none}.` : ` Hiding ${told_hidden()} changes none of its tokens.`;
}

/** Is the translation right, as far as it is written? */
function verdict_of_words(text, right, has_ended) {
  if (has_ended && text === right) return persons() ? "Right: the same words as in the data set." : "Right.";
  const [words, goal] = [text, right].map(words_of);
  const found = changes(words, goal, !has_ended);
  if (!has_ended && !found.length) {
    return `${text ? `So far the same words as ${whose()}` : whose().replace(/^./, (letter) => letter.toUpperCase())}: “${right}”`;
  }
  if (!found.length) return `The same words as ${whose()}, “${right}”. Only signs or capital letters differ.`;
  if (2 * found.length > goal.length) {
    return `${has_ended ? "Far from" : "So far not close to"} ${whose()}, “${right}”: ${found.length} words ` +
      "differ.";
  }
  const forced = forced_words(words);
  const differences = found.map(([here, there]) => {
    const word = `${forced.includes(here) ? "you chose " : ""}‘${named(here)}’`;
    return !here ? `‘${there}’ is missing` : there ? `${word} instead of ‘${there}’`
      : forced.includes(here) ? `${word}, which is added` : `${word} is added`;
  }).join(", ");
  if (!persons()) return `${has_ended ? "Wrong" : "So far wrong"}: ${differences}. A correct translation is “${right}”`;
  const is_other = !state.hidden.length && found.every(([here, there]) => here && there && !forced.includes(here));
  return `${has_ended ? "Different" : "So far different"} from ${whose()}, “${right}”: ${differences}.` +
    `${is_other ? " This can be a mistake, another good translation, or a mistake in the data set." : ""}`;
}

/**
 * Which letters are skipped, doubled, added or others, if these are fewer than the letters that differ at their place.
 * @returns {string} "" if not
 */
function told_letters(text, right, has_ended) {
  const found = changes([...text], [...right], !has_ended);
  const missing = has_ended ? Math.max(0, right.length - text.length) : 0;
  const n_at_place = [...text].filter((letter, i) => letter !== right[i]).length + missing;
  if (found.length >= n_at_place || 2 * found.length > right.length) return "";
  const is_doubled = (letter) => text.includes(letter + letter) && !right.includes(letter + letter);
  const skipped = found.filter(([here]) => !here).map(([, there]) => `‘${there}’`);
  const others = found.filter(([here]) => here).map(([here, there]) => (there ? `‘${here}’ instead of ‘${there}’`
    : `‘${here}’ is ${is_doubled(here) ? "doubled" : "added"}`));
  if (skipped.length) others.unshift(`${skipped.join(", ")} ${skipped.length === 1 ? "is" : "are"} skipped`);
  return others.join(", ");
}

/** Is the reversed word right, as far as it is written? */
function verdict_of_letters(source, text, right, has_ended) {
  if (has_ended && text === right) return `Right: ‘${text}’ is ‘${source}’ backwards.`;
  if (!has_ended && right.startsWith(text)) {
    if (text === right) return "All letters are right. The end is missing.";
    return text ? `Right so far. Missing: ‘${right.slice(text.length)}’.` : `It should write ‘${right}’.`;
  }
  const aligned = told_letters(text, right, has_ended);
  if (aligned && !state.forced.length) return `Wrong: ${aligned}. ‘${source}’ backwards is ‘${right}’.`;
  const n = [...text].findIndex((letter, i) => letter !== right[i]);
  const [here, there] = [text[n], right[n < 0 ? text.length : n]];
  const by_whom = state.forced.includes(n + 1) ? ", which you chose," : "";
  const first = here ? `letter ${n + 1} is ‘${here}’${by_whom} ` : `it ends after ${text.length} of ${right.length} letters; `;
  const instead = !there ? "and should not be there" : here ? `instead of ‘${there}’` : `next should come ‘${there}’`;
  return `Wrong: ${first}${instead}. ‘${source}’ backwards is ‘${right}’.`;
}

const SHARED = "English and French share one table of 2,000 tokens, so parts of English words can be French words.";

/** What to learn from this text. @param {number[]} shares the probability of each token of the target, at temperature 1 */
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
  const cut = vocabulary.words?.(state.src).filter((pieces) => pieces.length > 1) ?? [];
  const capitals = cut.filter((pieces) => /^\p{Lu}{2,}$/u.test(pieces.join("")));
  const others = cut.filter((pieces) => !capitals.includes(pieces));
  if (capitals.length) {
    parts.push(`Words in capital letters (${capitals.map((pieces) => pieces.join("")).join(", ")}) are cut into other ` +
      "tokens than in lower case, and the model hardly knows them: write them in lower case.");
  }
  if (others.length) {
    parts.push(`Cut into parts: ${others.map((pieces) => pieces.join("·")).join(", ")}. ${SHARED} Only frequent words are one ` +
      "token; the model is often wrong about others.");
  }
  parts.push(...told_unneeded());
  const origins = shares.map((_, t) => origin(t));
  const is_thrice = (id, t, ids) => id === ids[t + 1] && id === ids[t + 2];
  const copied = state.src.find(is_thrice) !== undefined; // as of “!!!”
  const again = state.name === "reverse" || copied ? undefined : state.tgt_in.find(is_thrice);
  if (again !== undefined && origins.every((who) => who === "model")) {
    parts.push(`It repeats ${told(again)}: this often happens where a model does not know how to go on.`);
  }
  const n_drawn = origins.filter((who) => who === "chance").length;
  if (n_drawn) parts.push(`At ${n_drawn} of ${shares.length} tokens, chance drew another one than the most probable.`);
  const unsure = shares.filter((share) => share < UNSURE).length;
  if (unsure) {
    const worst = largest_first(shares).at(-1);
    parts.push(`Low p (dashed border: below ${UNSURE}) at ${unsure} of ${shares.length} tokens, the lowest at ` +
      `${told(state.tgt_in[worst + 1])}${origins[worst] === "reader" ? ", which you chose" : ""}.`);
  } else if (shares.length) {
    const but = wanted() !== undefined && first_wrong() < 0 ? ""
      : wanted() !== undefined && !persons() ? ", and yet not all are right" : ". This does not say that it is right";
    parts.push(`Every token has a probability of ${UNSURE} or more${but}.`);
  }
  return parts.join(" ");
}
