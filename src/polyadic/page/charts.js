/* Charts as SVG, each with a name at every axis. */

// ---- frames -------------------------------------------------------------------------------------

function canvas(width, height, label) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

const label = (x, y, text, attributes = {}) => draw("text", { x, y, text, ...attributes });

/* Write a round share beside an axis. */
const markShare = (share) => mark(Math.round(1e4 * share) / 100) + PER_CENT;

/* Horizontal grid lines with numbers. */
function rules(root, y, values, left, right, write = mark) {
  for (const value of values) {
    const zero = value === 0 ? "zero" : "rule";
    root.append(draw("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: zero }));
    root.append(label(left - 6, y(value) + 3.5, write(value), { "text-anchor": "end" }));
  }
}

function footing(root, x, values, at, write = mark) {
  for (const value of values)
    root.append(label(x(value), at, write(value), { "text-anchor": "middle" }));
}

/* The name of an axis: below, at the left (turned) or at the right (turned). */
function axisName(root, text, x, y, turned = false) {
  const turn = turned ? { transform: `rotate(-90 ${x} ${y})` } : {};
  root.append(
    label(x, y, shorten(text, 40), { class: "axis", "text-anchor": "middle", ...turn }),
  );
}

// ---- charts -------------------------------------------------------------------------------------

/* An effect curve with the density of the rows below it. Returns the figure's SVG and a function
   that marks a value. `names` are those of the column and of the effect; `chance`, where given, turns
   an effect into a probability, for the axis at the right. */
function effectCurve(names, effect, values, limits, chance) {
  const [left, right, top, bottom, ground] = [58, chance ? 256 : 314, 8, 140, 170];
  const root = canvas(320, 206, `Effect of ${names[0]}, with the density of the rows`);
  const [low, high] = effect.ends;
  const x = scale(low, high, left, right);
  const y = scale(...limits, bottom, top);
  const marks = ticks(...limits, 4);
  rules(root, y, marks, left, right);
  if (chance) {
    for (const value of marks) root.append(label(right + 5, y(value) + 3.5, percent(chance(value))));
    axisName(root, "probability", 317, (top + bottom) / 2, true);
  }
  axisName(root, names[1], 12, (top + bottom) / 2, true);
  axisName(root, names[0], (left + right) / 2, 202);
  const inside = Array.from(effect.grid).filter((g) => g > low && g < high);
  const points = [low, ...inside, high].map(
    (g) => `${x(g).toFixed(2)},${y(interpolate(effect.grid, values, g)).toFixed(2)}`,
  );
  densityStrip(root, effect, x, low, high, bottom + 8, ground);
  footing(root, x, ticks(low, high, 4), 185);
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
function agreement({ points, bins, axes, names, title, write = mark, tell = format }) {
  const root = canvas(420, 320, title);
  const [left, right, top, bottom] = [66, 404, 12, 268];
  const x = scale(...axes, left, right);
  const y = scale(...axes, bottom, top);
  const marks = ticks(...axes, 6);
  rules(root, y, marks, left, right, write);
  footing(root, x, marks, bottom + 18, write);
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
          text: `${names[0]} ${tell(f)}, ${names[1]} ${tell(t)} (mean of ${format(count)} rows)`,
        }),
      ),
    );
  axisName(root, names[0], (left + right) / 2, 308);
  axisName(root, names[1], 11, (top + bottom) / 2, true);
  return root;
}

/* The share of a class that is found among the rows with the highest probabilities. Returns the SVG
   and a function that marks a share of the rows. */
function gainCurve(gain, names) {
  const root = canvas(420, 320, "Share found among the most probable rows");
  const [left, right, top, bottom] = [66, 404, 12, 268];
  const [x, y] = [scale(0, 1, left, right), scale(0, 1, bottom, top)];
  const marks = ticks(0, 1, 6);
  rules(root, y, marks, left, right, markShare);
  footing(root, x, marks, bottom + 18, markShare);
  root.append(draw("line", { class: "ideal", x1: left, y1: bottom, x2: right, y2: top }));
  const points = gain.map((g, k) => `${x(k / (gain.length - 1))},${y(g)}`).join(" ");
  const marker = draw("line", { class: "marker", y1: top, y2: bottom });
  const dot = draw("circle", { class: "dot", r: 4.5 });
  root.append(draw("polyline", { class: "curve", points }), marker, dot);
  axisName(root, names[0], (left + right) / 2, 308);
  axisName(root, names[1], 11, (top + bottom) / 2, true);
  const mark = (share, found) => {
    fill(marker, { x1: x(share), x2: x(share) }, []);
    fill(dot, { cx: x(share), cy: y(found) }, []);
  };
  return { root, mark };
}

/* A horizontal bar in a track, placed by shares of its width. */
function placeBar(bar, from, to) {
  bar.style.left = `${100 * Math.min(from, to)}%`;
  bar.style.width = `${Math.max(100 * Math.abs(to - from), 0.4)}%`;
}
