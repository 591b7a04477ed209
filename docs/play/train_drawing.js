"use strict";
// Numbers as colours: small pictures, tables whose cells are read by pointer and keyboard, the attention, the curves.
// Blue is negative, the colour of the page is 0, red is positive; each matrix has its own scale, but weights and
// probabilities are drawn from 0 to 1.

const ENDS = {}; // of the colours, red, green, blue from 0 to 255: page.css has them, for the light and the dark scheme

function read_colours() {
  const style = getComputedStyle(document.documentElement);
  for (const [end, name] of Object.entries({ negative: "--minus", zero: "--paper", positive: "--plus" })) {
    ENDS[end] = style.getPropertyValue(name).trim().match(/[\da-f]{2}/g).map((hex) => parseInt(hex, 16));
  }
}
read_colours();

/** The colour of a number from -1 to 1. @returns {number[]} red, green, blue from 0 to 255 */
function colour(value) {
  if (!Number.isFinite(value)) return [255, 214, 0]; // what is no number is yellow
  const part = Math.min(Math.abs(value), 1) ** 0.7;
  return (value < 0 ? ENDS.negative : ENDS.positive).map((end, i) => Math.round(ENDS.zero[i] + part * (end - ENDS.zero[i])));
}

const ink_on = ([r, g, b]) => (0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2 > 0.18 ? "#000" : "#fff");
const peak = (matrix) => matrix.data.reduce((most, x) => Math.max(most, Math.abs(x) || 0), 0) || 1;

/** A part of a matrix: rows and columns from first to last. */
function part_of(matrix, [first_row, last_row] = [0, matrix.n], [first, last] = [0, matrix.m]) {
  const [n, m] = [last_row - first_row, last - first];
  const data = Float64Array.from({ length: n * m }, (_, i) => matrix.data[(first_row + Math.floor(i / m)) * matrix.m + first + (i % m)]);
  return { n, m, data };
}

/** Draw matrices side by side into a canvas, a pixel for each number; the style sheet makes it large. */
function picture(canvas, parts, most = Math.max(...parts.map(peak))) {
  const width = parts.reduce((sum, part) => sum + part.m, parts.length - 1);
  [canvas.width, canvas.height] = [width, parts[0].n];
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, parts[0].n);
  let left = 0;
  for (const part of parts) {
    part.data.forEach((x, i) => {
      const at = 4 * (Math.floor(i / part.m) * width + left + (i % part.m));
      image.data.set([...colour(x / most), 255], at);
    });
    left += part.m + 1;
  }
  context.putImageData(image, 0, 0);
}

/** The power of ten that a table's numbers are divided by, so that three digits tell them apart. */
function unit_of(matrix) {
  const exponent = Math.floor(Math.log10(peak(matrix)));
  return exponent < -1 || exponent > 2 ? exponent : 0;
}

const superscript = (n) => String(n).replace(/[-\d]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);

/** A number with four digits, for a sentence. */
function digits(x) {
  if (!Number.isFinite(x)) return String(x);
  const [part, exponent] = x.toExponential(3).split("e").map(Number);
  const text = x === 0 ? "0" : Math.abs(exponent) < 4 ? String(Number(x.toPrecision(4))) : `${part}·10${superscript(exponent)}`;
  return text.replace("-", "−");
}

/** A table of numbers; `fill(matrix)` writes into it. One cell has the Tab key's focus, the arrow keys move it. */
function matrix_table({ title, rows, cols, name }) {
  const cell = (i, j) => element("td", { tabindex: i || j ? "-1" : "0", "data-i": i, "data-j": j });
  const head = element("tr", {}, element("td"), ...cols.map((label) => element("th", { scope: "col" }, label)));
  const body = rows.map((label, i) => element("tr", {}, element("th", { scope: "row" }, label), ...cols.map((_, j) => cell(i, j))));
  const caption = element("figcaption");
  const table = element("table", { class: "numbers", "aria-label": title }, element("thead", {}, head), element("tbody", {}, ...body));
  const figure = element("figure", { class: "matrix", "data-name": name }, caption, scrolling(table));
  const cells = [...table.querySelectorAll("tbody td")];

  function fill(matrix, text, most = peak(matrix)) {
    const unit = unit_of(matrix);
    caption.replaceChildren(element("b", {}, text), ` ${matrix.n} × ${matrix.m}${unit ? `, in units of 10${superscript(unit)}` : ""}`);
    cells.forEach((node, i) => {
      const rgb = colour(matrix.data[i] / most);
      node.textContent = Number.isFinite(matrix.data[i]) ? number(matrix.data[i] / 10 ** unit, 2) : String(matrix.data[i]);
      node.style.background = `rgb(${rgb})`;
      node.style.color = ink_on(rgb);
    });
  }

  table.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -cols.length, ArrowDown: cols.length, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = cells[cells.indexOf(event.target) + move];
    if (!next) return;
    event.preventDefault();
    focus_cell(next);
  });
  return { figure, fill };
}

function focus_cell(cell) {
  cell.closest("table").querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
  cell.setAttribute("tabindex", "0");
  cell.focus();
}

/** The weights of one head as a picture with letters; the places of the wanted letters have a frame. */
function attention_map(title, weights, rows, cols, wanted) {
  const [size, left, top] = [24, 8 + 6.4 * Math.max(...rows.map((label) => label.length)), 22];
  const [width, height] = [left + cols.length * size + 4, top + rows.length * size + 4];
  const text = (x, y, label, anchor) => `<text x="${x}" y="${y}" text-anchor="${anchor}">${escaped(label)}</text>`;
  const cells = [...weights.data].map((w, i) => {
    const [t, s] = [Math.floor(i / weights.m), i % weights.m];
    const frame = wanted[t] === s ? ' class="wanted"' : "";
    return `<rect x="${left + s * size + 1}" y="${top + t * size + 1}" width="${size - 2}" height="${size - 2}" fill="rgb(${colour(w)})"${frame}/>`;
  });
  const names = [...rows.map((label, t) => text(left - 6, top + (t + 0.7) * size, label, "end")),
    ...cols.map((label, s) => text(left + (s + 0.5) * size, top - 6, label, "middle"))];
  const strongest = rows.map((label, t) => {
    const row = [...weights.data.subarray(t * weights.m, (t + 1) * weights.m)];
    const s = row.indexOf(Math.max(...row));
    return `${label} from ${cols[s]} ${Math.round(100 * row[s])} %`;
  });
  const figure = element("figure", {}, element("figcaption", {}, title));
  figure.insertAdjacentHTML("beforeend", `<svg viewBox="0 0 ${width} ${height}" role="img"
    aria-label="${escaped(`${title}: ${strongest.join(", ")}`)}">${names.join("")}${cells.join("")}</svg>`);
  return figure;
}

/** The loss (a line, left axis) and the share of words written right (dots, right axis) over the steps. */
function curves(svg, { losses, rights, start, other, at, until }) {
  const [width, height, left, right, top, bottom] = [400, 132, 30, 40, 8, 20];
  const last = Math.max(until, losses.length, 50);
  const highest = Math.max(start || 1, ...losses.filter(Number.isFinite), ...(other ?? [])) * 1.05;
  const x = (step) => left + (step / last) * (width - left - right);
  const y = (part) => top + (1 - part) * (height - top - bottom);
  const stride = Math.ceil(losses.length / 400);
  const line = (values) => values.filter((_, i) => i % stride === 0).map((v, i) => `${x(i * stride + 1).toFixed(1)},${y(v / highest).toFixed(1)}`).join(" ");
  const label = (px, py, text, anchor, kind = "") => `<text x="${px}" y="${py}" text-anchor="${anchor}" class="${kind}">${text}</text>`;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.innerHTML = `<path class="axis" d="M${left} ${top}V${height - bottom}H${width - right}V${top}"/>
    ${label(left - 5, y(0) + 4, "0", "end")}${label(left - 5, top + 9, highest.toFixed(highest < 10 ? 1 : 0), "end")}
    ${label(width - right + 5, y(0) + 4, "0 %", "start", "right")}${label(width - right + 5, top + 9, "100 %", "start", "right")}
    ${label(left, height - 5, "step 0", "start")}${label(width - right, height - 5, last, "end")}
    ${other ? `<polyline class="other" points="${line(other)}"/>` : ""}<polyline class="loss-line" points="${line(losses)}"/>
    ${rights.map(([step, part]) => `<circle class="right-dot" cx="${x(step)}" cy="${y(part)}" r="2.6"/>`).join("")}
    <path class="at" d="M${x(at)} ${top}V${height - bottom}"/>`;
}
