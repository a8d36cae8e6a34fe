/* Elements, numbers and charts. Text goes through textContent only: names are data, never markup. */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const make = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// ---- numbers ------------------------------------------------------------------------------------

/* Write a number: four significant digits, few zeros. */
function format(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e9 || size < 1e-4))
    return x.toExponential(2).replace("e+", "e").replace("-", "−");
  const whole = Number.isInteger(x) && size < 1e9;
  const places = whole
    ? {}
    : { maximumSignificantDigits: Math.max(digits, Math.ceil(Math.log10(size + 1))) };
  return x.toLocaleString("en", { useGrouping: size >= 1e4, ...places }).replace("-", "−");
}

/* Write a step with its sign: all steps have as many decimals as the largest needs. */
function step(x, largest) {
  const size = Math.floor(Math.log10(Math.max(largest, 1e-300)));
  if (size > 6 || size < -4) return signed(x, 3);
  const text = Math.abs(x).toFixed(Math.min(Math.max(2 - size, 0), 6));
  const sign = Number(text) === 0 ? "" : x > 0 ? "+" : "−";
  return (
    sign +
    Number(text).toLocaleString("en", {
      useGrouping: largest >= 1e4,
      minimumFractionDigits: text.split(".")[1]?.length ?? 0,
    })
  );
}

/* Write a round number beside an axis: with all of its digits. */
const mark = (x) => format(x, 8);

const signed = (x, digits = 3) => (x > 0 ? "+" : "") + format(x, digits);

function percent(share) {
  const p = 100 * share;
  if (p === 0 || (p >= 10 && p < 99.5)) return `${Math.round(p)} %`;
  if (p < 0.05) return "< 0.1 %";
  return `${p > 99.95 && share < 1 ? "> 99.9" : p.toFixed(p === 100 ? 0 : 1)} %`;
}

const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/* Whether two ends differ by more than rounding. */
const distinct = (low, high) => high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high));

/* Round numbers between two ends, about as many as asked for. */
function ticks(low, high, count) {
  if (!distinct(low, high)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((k) => k * power >= rough * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
    out.push(k * step);
  return out.map((t) => (Math.abs(t) < step * 1e-9 ? 0 : Number(t.toPrecision(12))));
}

/* A linear scale; where both ends are equal, everything is drawn in the middle. */
function scale(low, high, from, to) {
  if (!(high > low)) return () => (from + to) / 2;
  return (x) => from + ((x - low) / (high - low)) * (to - from);
}

function widen([low, high]) {
  const room = distinct(low, high) ? 0.06 * (high - low) : Math.abs(low) * 0.1 || 1;
  return [low - room, high + room];
}

const extent = (values) =>
  values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

/* Value of a curve at x, by linear interpolation; constant beyond its ends. */
function interpolate(grid, values, x) {
  if (x <= grid[0]) return values[0];
  for (let k = 1; k < grid.length; k++)
    if (x <= grid[k]) {
      const t = (x - grid[k - 1]) / (grid[k] - grid[k - 1]);
      return values[k - 1] + t * (values[k] - values[k - 1]);
    }
  return values[grid.length - 1];
}

// ---- frames -------------------------------------------------------------------------------------

function canvas(width, height, label) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

const label = (x, y, text, attributes = {}) => draw("text", { x, y, text, ...attributes });

/* Horizontal grid lines with numbers. */
function rules(root, y, values, left, right) {
  for (const value of values) {
    const zero = value === 0 ? "zero" : "rule";
    root.append(draw("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: zero }));
    root.append(label(left - 6, y(value) + 3.5, mark(value), { "text-anchor": "end" }));
  }
}

function footing(root, x, values, at) {
  for (const value of values)
    root.append(label(x(value), at, mark(value), { "text-anchor": "middle" }));
}

// ---- charts -------------------------------------------------------------------------------------

/* An effect curve with the density of the rows below it. Returns the figure's SVG and a function
   that marks a value. */
function effectCurve(name, effect, values, limits) {
  const [left, right, top, bottom, ground] = [46, 314, 10, 132, 166];
  const root = canvas(320, 186, `Effect of ${name}, with the density of the rows`);
  const [low, high] = effect.ends;
  const x = scale(low, high, left, right);
  const y = scale(...limits, bottom, top);
  rules(root, y, ticks(...limits, 4), left, right);
  const inside = Array.from(effect.grid).filter((g) => g > low && g < high);
  const points = [low, ...inside, high].map(
    (g) => `${x(g).toFixed(2)},${y(interpolate(effect.grid, values, g)).toFixed(2)}`,
  );
  densityStrip(root, effect, x, low, high, bottom + 8, ground);
  footing(root, x, ticks(low, high, 4), 181);
  const marker = draw("line", { class: "marker", y1: top, y2: ground });
  const dot = draw("circle", { class: "dot", r: 4 });
  root.append(marker, draw("polyline", { class: "curve", points: points.join(" ") }), dot);
  const mark = (value) => {
    const known = !Number.isNaN(value);
    for (const part of [marker, dot]) part.style.display = known ? "" : "none";
    if (!known) return;
    const at = x(Math.min(Math.max(value, low), high));
    marker.setAttribute("x1", at);
    marker.setAttribute("x2", at);
    dot.setAttribute("cx", at);
    dot.setAttribute("cy", y(interpolate(effect.grid, values, value)));
  };
  return { root, mark };
}

/* The density of the rows along a column: a bar for each of few values, or bins. */
function densityStrip(root, effect, x, low, high, top, ground) {
  const { edges, points, density } = effect;
  const most = Math.max(...density, 0);
  const thick = points ? barWidth(points.map(x)) : 0;
  density.forEach((share, k) => {
    const [a, b] = points
      ? [x(points[k]) - thick / 2, x(points[k]) + thick / 2]
      : [x(edges[k]), x(edges[k + 1])];
    if (!(most > 0) || (points && (points[k] < low || points[k] > high))) return;
    const tall = (ground - top) * Math.sqrt(share / most); // square roots: rare values stay visible
    root.append(
      draw("rect", { class: "density", x: a, width: b - a + 0.2, y: ground - tall, height: tall }),
    );
  });
  root.append(draw("line", { class: "zero", x1: x(low), x2: x(high), y1: ground, y2: ground }));
}

function barWidth(places) {
  const gaps = places.slice(1).map((place, k) => place - places[k]);
  return Math.min(Math.max(0.7 * Math.min(...gaps, 30), 2), 20);
}

/* Predicted against actual: dots, means of tenths, and the line where both agree. */
function agreement({ points, bins, axes, names, title }) {
  const root = canvas(420, 320, title);
  const [left, right, top, bottom] = [58, 408, 12, 268];
  const x = scale(...axes, left, right);
  const y = scale(...axes, bottom, top);
  const marks = ticks(...axes, 6);
  rules(root, y, marks, left, right);
  footing(root, x, marks, bottom + 18);
  root.append(draw("line", { class: "ideal", x1: left, y1: bottom, x2: right, y2: top }));
  const clamp = (v) => Math.min(Math.max(v, axes[0]), axes[1]);
  for (const [f, t] of points)
    root.append(draw("circle", { class: "point", cx: x(clamp(f)), cy: y(clamp(t)), r: 2.4 }));
  const path = bins.map(([f, t]) => `${x(clamp(f))},${y(clamp(t))}`).join(" ");
  root.append(draw("polyline", { class: "curve thin", points: path }));
  for (const [f, t, count] of bins)
    root.append(
      draw(
        "circle",
        { class: "bin", cx: x(clamp(f)), cy: y(clamp(t)), r: 4.5 },
        draw("title", {
          text: `${names[0]} ${format(f)}, ${names[1]} ${format(t)} (mean of ${format(count)} rows)`,
        }),
      ),
    );
  root.append(label((left + right) / 2, 308, names[0], { class: "axis", "text-anchor": "middle" }));
  const side = label(14, (top + bottom) / 2, names[1], { class: "axis", "text-anchor": "middle" });
  side.setAttribute("transform", `rotate(-90 14 ${(top + bottom) / 2})`);
  root.append(side);
  return root;
}

/* A heat map: two hues for the sign, opacity for the size, so that zero is the background.
   The cell under the pointer, or chosen by the arrow keys, is framed and passed to `report`. */
function heatMap(names, axes, value, report) {
  const [width, height, left, top] = [
    340,
    axes[0].categories ? 300 : 284,
    axes[1].categories ? 92 : 58,
    8,
  ];
  const [right, bottom] = [width - 8, axes[0].categories ? 212 : 246];
  const root = fill(
    canvas(width, height, `Interaction of ${names[0]} and ${names[1]}; move with the arrow keys`),
    { role: "application", tabindex: 0, class: "heat" },
    [],
  );
  const counts = axes.map((axis) => (axis.categories || axis.grid).length);
  const [wide, tall] = [(right - left) / counts[0], (bottom - top) / counts[1]];
  let at = [0, 0]; // the keys start from the strongest cell
  const strength = ([i, j]) => Math.abs(value(i, j));
  for (let i = 0; i < counts[0]; i++)
    for (let j = 0; j < counts[1]; j++) if (strength([i, j]) > strength(at)) at = [i, j];
  const most = strength(at);
  const say = (axis, k) => (axis.categories ? axis.categories[k] : format(axis.grid[k], 6));
  const corner = ([i, j]) => ({ x: left + i * wide, y: bottom - (j + 1) * tall });
  const cursor = draw("rect", { class: "cursor", width: wide, height: tall });
  const look = (cell) => {
    at = cell;
    fill(cursor, corner(at), []);
    const [a, b] = axes.map((axis, k) => `${names[k]} ${say(axis, at[k])}`);
    report(`${a}, ${b}: ${signed(value(...at))}`);
  };
  for (let i = 0; i < counts[0]; i++)
    for (let j = 0; j < counts[1]; j++) {
      const v = value(i, j);
      const cell = draw("rect", {
        class: v > 0 ? "up" : "down",
        "fill-opacity": most > 0 ? (Math.abs(v) / most).toFixed(3) : 0,
        ...corner([i, j]),
        width: wide,
        height: tall,
        onpointerenter: () => look([i, j]),
      });
      root.append(cell);
    }
  root.append(
    draw("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }),
    cursor,
  );
  root.addEventListener("focus", () => look(at));
  root.addEventListener("keydown", (event) => {
    const move = ARROWS[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault(); // the page must not scroll
    look(at.map((k, side) => Math.min(Math.max(k + move[side], 0), counts[side] - 1)));
  });
  heatAxis(root, axes[0], wide, (at, text) => {
    const turned = axes[0].categories
      ? { transform: `rotate(-35 ${left + at} ${bottom + 14})`, "text-anchor": "end" }
      : { "text-anchor": "middle" };
    root.append(label(left + at, bottom + 14, text, turned));
  });
  heatAxis(root, axes[1], tall, (at, text) =>
    root.append(label(left - 6, bottom - at + 3.5, text, { "text-anchor": "end" })),
  );
  root.append(
    label((left + right) / 2, axes[0].categories ? 292 : bottom + 34, shorten(names[0], 34), {
      class: "axis",
      "text-anchor": "middle",
    }),
  );
  if (!axes[1].categories) {
    const middle = (top + bottom) / 2;
    root.append(
      label(12, middle, shorten(names[1], 28), {
        class: "axis",
        "text-anchor": "middle",
        transform: `rotate(-90 12 ${middle})`,
      }),
    );
  }
  return { root, most };
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };

/* Place the labels of one side: each category, or round numbers along the grid. */
function heatAxis(root, axis, step, place) {
  if (axis.categories) {
    axis.categories.forEach((name, k) => place((k + 0.5) * step, shorten(name, 13)));
    return;
  }
  const [low, high] = [axis.grid[0], axis.grid[axis.grid.length - 1]];
  const at = scale(low, high, 0.5 * step, (axis.grid.length - 0.5) * step);
  for (const t of ticks(low, high, 4)) place(at(t), mark(t));
}

/* The legend of a heat map's colours. */
function legend(most) {
  const root = draw("svg", {
    viewBox: "0 0 210 10",
    preserveAspectRatio: "none",
    class: "legend",
    "aria-hidden": "true",
  });
  for (let k = -10; k <= 10; k++)
    root.append(
      draw("rect", {
        class: k > 0 ? "up" : "down",
        "fill-opacity": Math.abs(k) / 10,
        x: (k + 10) * 10,
        width: 10,
        y: 0,
        height: 10,
      }),
    );
  return make(
    "div",
    { class: "scale" },
    make("span", { text: signed(-most) }),
    root,
    make("span", { text: signed(most) }),
  );
}

/* A horizontal bar in a track, placed by shares of its width. */
function placeBar(bar, from, to) {
  bar.style.left = `${100 * Math.min(from, to)}%`;
  bar.style.width = `${Math.max(100 * Math.abs(to - from), 0.4)}%`;
}
