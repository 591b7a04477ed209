"use strict";
// What all pages need: elements, what a narrow screen folds, pictures and tables of matrices. A picture is one SVG, whose
// cells are more or less opaque, so that it fits both themes: weights have the colour of the text, numbers with a sign two
// colours of page.css.

const $ = (id) => document.getElementById(id);

/** A new HTML element. @param {object} attributes @param {...(Node|string)} children */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** A button. @param {() => void} act what a click does @param {object} attributes @param {...(Node|string)} children */
function pressable(act, attributes, ...children) {
  const node = element("button", { type: "button", ...attributes }, ...children);
  node.addEventListener("click", act);
  return node;
}

const narrow_screen = matchMedia("(max-width: 40rem)");

/** On a wide screen everything is open; on a narrow one the reader opens what is secondary. */
function fold() {
  for (const node of document.querySelectorAll("details.fold")) node.open = !narrow_screen.matches;
}

/** Open everything in which a node is folded. */
function unfold(node) {
  for (let at = node.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
}

narrow_screen.addEventListener("change", fold);
fold();

/** A number for people, with a real minus sign; a large one with an exponent. */
function number(value, digits = 4) {
  const text = Math.abs(value) < 1e4 ? value.toFixed(digits) : value.toExponential(digits);
  return (/^-0\.?0*$/.test(text) ? text.slice(1) : text).replace("-", "−");
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

/** The largest absolute value; 1 if all are 0. */
function peak_of(matrix) {
  return Math.max(...matrix.flat().map(Math.abs)) || 1;
}

/**
 * The cells of a matrix as the inner part of an SVG.
 * @param {Matrix} values (n, m)
 * @param {(value: number) => number} opacity from 0 to 1; below 0, as opaque in the second colour
 * @param {boolean[][]} [keep_mask] (n, m); where it is false, the cell is crossed out
 * @param {boolean} [signed] whether the cells have the two colours of signs
 */
function cells(values, opacity, width, height, keep_mask, signed) {
  const gap = width > 16 ? 1 : 0; // between cells that are large enough
  const levels = new Map(); // opacity, in steps of 1/64 -> the path of all cells with it, which is quicker than many rects
  let crosses = "";
  values.forEach((row, i) => row.forEach((value, j) => {
    if (keep_mask && !keep_mask[i][j]) {
      crosses += `M${j * width + 2} ${i * height + 2}l${width - 4} ${height - 4}`;
      return;
    }
    const level = Math.round(64 * opacity(value));
    const cell = `M${j * width} ${i * height}h${width - gap}v${height - gap}h${gap - width}z`;
    if (level) levels.set(level, (levels.get(level) ?? "") + cell);
  }));
  const paths = [...levels].map(([level, d]) =>
    `<path d="${d}" class="${level < 0 ? "minus" : "plus"}" fill-opacity="${Math.abs(level) / 64}"/>`).join("");
  const kind = signed ? "cells signed" : "cells";
  return `<g class="${kind}" shape-rendering="crispEdges">${paths}</g><path class="masked" d="${crosses}"/>`;
}

/** A box that scrolls sideways, and says so while a part of it is cut off. */
function scrolling(...children) {
  const node = element("div", { class: "scroll" }, ...children);
  sizes.observe(node);
  return node;
}
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("cut", target.scrollWidth > target.clientWidth + 1);
});

/** The width of cells with which a picture fits into a box, if it is not too small to be read. */
function fitting(box, rows, cols, most = 22) {
  const names = 20 + 7.2 * Math.max(...rows.map((name) => name.length)) + 4 * Math.max(...cols.map((name) => name.length));
  const width = box.clientWidth || document.querySelector("main").clientWidth; // a folded box has none
  return Math.min(most, Math.max(14, Math.floor((width - names) / cols.length)));
}

/**
 * A picture of a matrix, whose numbers are read with the pointer or the arrow keys.
 * @param {object} options
 * @param {string} options.title
 * @param {string} [options.text] what stands after the title
 * @param {Matrix} options.values (n, m)
 * @param {string[]} options.rows names of the rows
 * @param {string[]} [options.cols] names of the columns; they are numbered if there are none
 * @param {boolean} [options.signed] whether the numbers have a sign; else they are from 0 to 1
 * @param {boolean[][]} [options.keep_mask]
 * @param {number} [options.width] of a cell
 * @param {number} [options.height] of a cell
 * @param {string} [options.row] what a row is, for the text of a cell
 * @param {string} [options.col] what a column is
 * @param {boolean} [options.table] whether the numbers can also be read as a table, which needs cols
 * @param {(value: number) => number} [options.opacity] of a cell
 * @param {string} [options.scale] what is written below the picture
 * @param {(value: number) => string} [options.told] how a number is told
 * @param {number} [options.chosen] a row that is framed
 * @param {(row: number, col: number) => void} [options.choose] what a click on a cell does, and Enter
 * @param {[number, number][]} [options.marks] cells that are outlined
 */
function heat_map({
  title, text = "", values, rows, cols, signed = false, keep_mask, width = 22, height = 22, row = "token", col = "column",
  table = false, opacity, scale, told = number, chosen, choose, marks = [],
}) {
  const [n, m] = [values.length, values[0].length];
  const peak = signed ? peak_of(values) : 1;
  opacity ??= signed ? (value) => value / peak : (value) => value;
  const left = 16 + 7.2 * Math.max(...rows.map((name) => name.length));
  const long = cols ? Math.max(...cols.map((name) => name.length)) : 0;
  const top = cols ? (long > 2 ? 14 + 6 * long : 20) : 4;
  const right = long > 2 ? 4 * long : 4; // the last name leans over
  const size = [left + m * width + right, top + n * height + 4];

  const names = rows.map((name, i) => {
    const y = top + (i + 0.5) * height + 4;
    return `<text x="${left - 6}" y="${y}" text-anchor="end">${escaped(name)}</text>`;
  });
  for (const [j, name] of (cols ?? []).entries()) {
    const [x, y] = [left + (j + 0.5) * width, top - 6];
    names.push(long > 2
      ? `<text transform="translate(${x + 3} ${y}) rotate(-55)">${escaped(name)}</text>`
      : `<text x="${x}" y="${y}" text-anchor="middle">${escaped(name)}</text>`);
  }
  const mark = chosen === undefined ? ""
    : `<rect class="chosen" y="${chosen * height - 1}" x="-1" width="${m * width + 2}" height="${height + 2}"/>`;
  const outlines = marks.map(([i, j]) =>
    `<rect class="mark" x="${j * width - 1}" y="${i * height - 1}" width="${width + 1}" height="${height + 1}"/>`).join("");
  const scroll = scrolling();
  const label = escaped(`${title}, ${n} by ${m} numbers. Arrow keys read them.${choose ? " Enter selects." : ""}`);
  scroll.innerHTML = `<svg width="${size[0]}" height="${size[1]}" viewBox="0 0 ${size.join(" ")}" tabindex="0"
    role="application" aria-roledescription="picture of a matrix" aria-label="${label}">
    ${names.join("")}<g transform="translate(${left} ${top})">${cells(values, opacity, width, height, keep_mask, signed)}
    <rect class="frame" width="${m * width}" height="${n * height}"/>${mark}${outlines}
    <rect class="cursor" width="${width}" height="${height}" visibility="hidden"/></g></svg>`;

  scale ??= signed ? `blue: down to ${number(-peak, 2)}; blank: 0; red: up to ${number(peak, 2)}` : "scale: 0 to 1";
  const readout = element("p", { class: "readout", "aria-live": "polite" }, scale);
  const caption = element("figcaption", {}, element("b", {}, title), ` ${text}`);
  const figure = element("figure", { class: "map" }, caption, scroll, readout);
  if (table) figure.append(details(values, rows, cols, keep_mask));

  const svg = scroll.firstChild;
  const cursor = svg.querySelector(".cursor");
  const at = [-1, -1];
  function show(i, j) {
    [at[0], at[1]] = [i, j];
    cursor.setAttribute("x", j * width);
    cursor.setAttribute("y", i * height);
    cursor.setAttribute("visibility", "visible");
    const masked = keep_mask && !keep_mask[i][j] ? " (masked)" : "";
    const place = `${row} ${rows[i]} (${i + 1}), ${col} ${cols ? `${cols[j]} (${j + 1})` : j + 1}`;
    readout.textContent = `${place}: ${told(values[i][j])}${masked}`;
  }
  function hide() {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = scale;
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top - top) / height);
    const j = Math.floor((event.clientX - box.left - left) / width);
    if (i >= 0 && i < n && j >= 0 && j < m) show(i, j);
  });
  if (choose) svg.addEventListener("click", () => at[0] >= 0 && choose(...at));
  svg.addEventListener("pointerleave", () => document.activeElement === svg || hide());
  svg.addEventListener("focus", () => at[0] < 0 ? show(...(marks[0] ?? [chosen ?? 0, 0])) : show(...at));
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    if (choose && ["Enter", " "].includes(event.key)) {
      event.preventDefault();
      choose(...at);
      return;
    }
    const arrows = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = { ...arrows, Home: [0, -m], End: [0, m] }[event.key];
    if (!move) return;
    event.preventDefault();
    const within = (value, last) => Math.min(Math.max(value, 0), last);
    show(within(at[0] + move[0], n - 1), within(at[1] + move[1], m - 1));
    const x = left + at[1] * width - scroll.scrollLeft; // where the cell is seen
    if (x < left || x + width > scroll.clientWidth) scroll.scrollLeft += x - scroll.clientWidth / 2;
    const y = top + at[0] * height - scroll.scrollTop;
    if (y < 0 || y + height > scroll.clientHeight) scroll.scrollTop += y - scroll.clientHeight / 2;
  });
  return figure;
}

/** The numbers of a matrix as a table, which is only made when it is opened. */
function details(values, rows, cols, keep_mask) {
  const node = element("details", {}, element("summary", {}, "numbers as a table"));
  node.addEventListener("toggle", () => {
    if (!node.open || node.querySelector("table")) return;
    const head = element("tr", {}, element("td"), ...cols.map((name) => element("th", { scope: "col" }, name)));
    const body = values.map((row, i) => element("tr", {}, element("th", { scope: "row" }, rows[i]),
      ...row.map((value, j) => element("td", {}, keep_mask && !keep_mask[i][j] ? "masked" : number(value)))));
    node.append(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  });
  return node;
}

/** A small picture of weights without names. @param {Matrix} weights (T, S) @param {number} [chosen] a row that is framed */
function small_map(weights, chosen) {
  const [n, m] = [weights.length, weights[0].length];
  const span = document.createElement("span");
  const size = Math.max(n, m) * 8;
  const frame = chosen === undefined ? ""
    : `<rect class="chosen" y="${chosen * 8}" width="${m * 8}" height="8" vector-effect="non-scaling-stroke"/>`;
  span.innerHTML = `<svg viewBox="-1 -1 ${size + 2} ${size + 2}" aria-hidden="true">
    <g transform="translate(${(size - m * 8) / 2} ${(size - n * 8) / 2})">${cells(weights, (value) => value, 8, 8)}
    <rect class="frame" width="${m * 8}" height="${n * 8}" vector-effect="non-scaling-stroke"/>${frame}</g></svg>`;
  return span.firstChild;
}
