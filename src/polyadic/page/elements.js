/* Elements and numbers. Text goes through textContent only: names are data, never markup. */

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

const PER_CENT = "\u00a0%"; // after a space at which no line ends

/* Write a share in per cent, with one decimal. */
function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  if (share === 0 || share === 1) return 100 * share + PER_CENT;
  if (share < 0.0005) return "<\u00a00.1" + PER_CENT;
  if (share > 0.9995 && share < 1) return ">\u00a099.9" + PER_CENT;
  return (100 * share).toFixed(1) + PER_CENT;
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

/* Write a measure by its kind: a share in per cent, any other as a number. */
const measured = (value, kind) => (kind === "share" ? percent(value) : format(value));

/* A name with its unit in brackets, where one is known. */
const withUnit = (data, name) =>
  data.units.has(name) ? `${name} (${data.units.get(name)})` : name;

/* Names in a sentence: "a, b and c". */
const listed = (names) =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
