"use strict";
// From text to the ids of tokens and back, as npformer.tokens.marks and npformer.tokens.subwords do it.

const CAPITAL = "↑", JOINED = "‿"; // the next word begins with a capital; there is no space on this side
const PAD = 0, BOS = 1, EOS = 2, UNKNOWN = 3;
const SPECIAL = ["<pad>", "<begin>", "<end>", "<unk>"]; // what the page calls them
const WORD = "[\\p{L}\\p{N}_]";
const PART = `(?:[cdjlmnst]|${WORD}*qu)['’](?=${WORD})|['’]?${WORD}+(?:-${WORD}+)*|[^\\p{L}\\p{N}_\\s]+`;

/** The first letter in upper case. */
function capital(part) {
  const [first = ""] = part; // one or two units of UTF-16
  return first.toUpperCase() + part.slice(first.length);
}

/** Separate words and signs, make the first word of a sentence lower-case, and mark both changes. */
function mark(line) {
  const words = [];
  let end = -1;
  let begins = true;
  line = line.normalize("NFKC").replaceAll(CAPITAL, "^").replaceAll(JOINED, "_");
  line = line.replace(/[\u200b\u200e\u200f\ufeff]/g, " ");
  for (const match of line.matchAll(new RegExp(PART, "giu"))) {
    let part = match[0];
    if (match.index === end && /^[\p{L}\p{N}]/u.test(part)) {
      words[words.length - 1] += JOINED;
    } else if (match.index === end) {
      part = JOINED + part;
    } else if (begins && part !== part.toLowerCase() && capital(part.toLowerCase()) === part) {
      words.push(CAPITAL);
      part = part.toLowerCase();
    }
    words.push(part);
    begins = ".!?".includes(part.at(-1));
    end = match.index + match[0].length;
  }
  return words.join(" ");
}

/** The line that was given to mark. */
function unmark(line) {
  let text = "";
  let begins = false;
  let joined = true;
  for (const word of line.split(/\s+/).filter((word) => word)) {
    if (word === CAPITAL) {
      begins = true;
      continue;
    }
    let bare = word.replaceAll(CAPITAL, "").replaceAll(JOINED, "");
    bare = begins ? capital(bare) : bare;
    text += joined || word.startsWith(JOINED) ? bare : ` ${bare}`;
    begins = false;
    joined = word.endsWith(JOINED);
  }
  return text;
}

/** Byte-pair encoding: join the pair of neighbours that makes the piece with the smallest id, until there is none. */
class Subwords {
  /** @param {string[]} pieces, one for each id; "▁" is a space */
  constructor(pieces) {
    this.pieces = pieces;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).filter(([piece]) => !/^<.*>$/.test(piece)));
  }

  /** @returns {number[]} the ids of a line, without begin and end tokens */
  encode(line) {
    const ids = [];
    const words = mark(line).split(" ").filter((word) => word);
    for (const piece of words.flatMap((word) => this.divide(`▁${word}`))) {
      const id = this.ids.get(piece) ?? UNKNOWN;
      if (id !== UNKNOWN || ids.at(-1) !== UNKNOWN) ids.push(id); // unknown letters in a row are one token
    }
    return ids;
  }

  /** @returns {string[]} the pieces of a word */
  divide(word) {
    const parts = [...word];
    for (;;) {
      const joined = parts.slice(1).map((part, i) => this.ids.get(parts[i] + part) ?? Infinity);
      const best = joined.indexOf(Math.min(...joined));
      if (best < 0 || joined[best] === Infinity) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  }

  /** A token for people, without the signs of spaces; a piece that goes on with a word begins with "·". */
  shown(id) {
    if (SPECIAL[id]) return SPECIAL[id];
    const piece = this.pieces[id];
    const bare = piece.replace("▁", "").replace(JOINED, "") || piece.replace("▁", "(space)");
    return piece.startsWith("▁") || /^<.*>$/.test(piece) ? bare : `·${bare}`;
  }

  /** @returns {string[]} the characters of a line that no token has */
  unknown(line) {
    const pieces = mark(line).split(" ").flatMap((word) => this.divide(word));
    return [...new Set(pieces.filter((piece) => !this.ids.has(piece)))];
  }

  /** @returns {string[][]} the pieces of each word of ids, without the sign of a space and the end token */
  words(ids) {
    const text = ids.filter((id) => id > EOS).map((id) => this.pieces[id]).join(" ");
    return text.split("▁").map((word) => word.split(" ").filter((piece) => /\p{L}/u.test(piece)));
  }

  /** @returns {string} the text of ids; begin, end and padding are skipped */
  decode(ids) {
    const pieces = ids.filter((id) => id > EOS).map((id) => (id === UNKNOWN ? " ⁇ " : this.pieces[id]));
    return unmark(pieces.join("").replaceAll("▁", " "));
  }
}

/** The tokens of the model that reverses words: each letter is one token. */
class Letters {
  /** @param {string[]} pieces, one for each id */
  constructor(pieces) {
    this.pieces = pieces;
  }

  /** @returns {number[]} the ids of a word; what is not a letter from a to z is left out */
  encode(word) {
    return [...word.toLowerCase()].map((letter) => this.pieces.indexOf(letter)).filter((id) => id > EOS);
  }

  /** A token for people. @param {number} id */
  shown(id) {
    return this.pieces[id];
  }

  /** @returns {string} the word of ids */
  decode(ids) {
    return ids.filter((id) => id > EOS).map((id) => this.pieces[id]).join("");
  }
}
