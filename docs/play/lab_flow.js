"use strict";
// A drawing of which array is computed from which, on which the way of a change is seen.

const PLACES = { // column and row of each array in the drawing
  attention: {
    scale: [0, 0], q: [0, 1], k: [0, 2], keep_mask: [1, 0], scores: [1, 1], weights: [2, 1], v: [2, 0], out: [3, 1], dout: [4, 2],
    loss: [4, 1], dv: [3, 2], dweights: [3, 3], dscores: [2, 3], dq: [1, 3], dk: [1, 4],
  },
  softmax: { x: [0, 0], e: [1, 0], y: [2, 0], loss: [3, 0], dy: [3, 1], mean: [2, 1.8], dx: [1, 1] },
  layer_norm: {
    x: [0, 1], mean: [1, 0], variance: [2, 0], rstd: [3, 0], x_hat: [3, 1], y: [4, 1], gain: [5, 0], bias: [4, 0], loss: [5, 1],
    dy: [5, 2], dgain: [4, 2], dbias: [5, 3], dx_hat: [4, 3], shift: [3, 3], along: [2.5, 2], dx: [1.5, 3],
  },
};
const [COLUMN, ROW, BOX] = [82, 44, 24]; // widths and heights

/** The arrays that stand in the formula of an array. */
function sources_of_array(name, bench, arrays) {
  const { parts, unseen } = bench.arrays[name];
  if (!parts) return [];
  const cells = [...parts(0, 0, arrays).flatMap((part) => part.cells ?? []), ...(unseen?.(0, arrays) ?? [])];
  return [...new Set(cells.map(([source]) => source))];
}

/** Arrays, and all that they are computed from. */
function with_sources(shown, bench, arrays) {
  const found = new Set();
  const visit = (name) => {
    if (found.has(name)) return;
    found.add(name);
    sources_of_array(name, bench, arrays).forEach(visit);
  };
  shown.forEach(visit);
  return found;
}

/** Where a line from the centre of a box leaves it. */
function border_of([x, y], width, [to_x, to_y]) {
  const [dx, dy] = [to_x - x, to_y - y];
  const share = Math.min(width / 2 / Math.abs(dx), BOX / 2 / Math.abs(dy));
  return [x + dx * share, y + dy * share].map((value) => value.toFixed(1));
}

/**
 * The drawing.
 * @param {string} of the name of the bench
 * @param {string[]} shown the arrays to draw, with all that they are computed from
 * @param {{changed: Set, moved: Set, watched: string}} state arrays that the reader changed, that have changed by it, and the
 * one that is asked about
 */
function flow(of, shown, { changed, moved, watched }, arrays) {
  const bench = BENCHES[of];
  const names = [...with_sources(shown, bench, arrays)];
  const symbol = (name) => bench.arrays[name].symbol ?? name;
  const width = (name) => 14 + 7.4 * Math.max(2, [...symbol(name).normalize("NFC")].length);
  const left = Math.min(...names.map((name) => PLACES[of][name][0]));
  const top = Math.min(...names.map((name) => PLACES[of][name][1]));
  const centre = (name) => [(PLACES[of][name][0] - left + 0.5) * COLUMN, (PLACES[of][name][1] - top + 0.5) * ROW];
  const size = [0, 1].map((axis) => Math.max(...names.map((name) => centre(name)[axis])) + [COLUMN, ROW][axis] / 2);

  const edges = names.flatMap((name) => sources_of_array(name, bench, arrays).map((source) => [source, name]));
  const lines = edges.map(([source, name]) => {
    const start = border_of(centre(source), width(source), centre(name));
    const end = border_of(centre(name), width(name), centre(source));
    const goes = (changed.has(source) || moved.has(source)) && moved.has(name);
    return `<path class="${goes ? "moved" : ""}" d="M${start}L${end}" marker-end="url(#${goes ? "moved-end" : "end"})"/>`;
  });
  const boxes = names.map((name) => {
    const [x, y] = centre(name);
    const kinds = [changed.has(name) && "changed", moved.has(name) && "moved", name === watched && "watched"].filter(Boolean);
    return `<g class="${kinds.join(" ")}" data-name="${name}"><rect x="${x - width(name) / 2}" y="${y - BOX / 2}" width="${width(name)}" ` +
      `height="${BOX}" rx="4"/><text x="${x}" y="${y + 4}" text-anchor="middle">${escaped(symbol(name))}</text></g>`;
  });
  const marker = (id) => `<marker id="${id}" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" ` +
    `markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z"/></marker>`;
  const told = names.filter((name) => bench.arrays[name].parts).map((name) =>
    `${symbol(name)} from ${list_of(sources_of_array(name, bench, arrays).map(symbol))}`);
  return `<svg viewBox="0 0 ${size.join(" ")}" style="max-width: ${size[0]}px" role="img" ` +
    `aria-label="What is computed from what: ${told.join("; ")}"><defs>${marker("end")}${marker("moved-end")}</defs>` +
    `${lines.join("")}${boxes.join("")}</svg>`;
}
