/* Heat maps of two columns, all on one scale of colours. */

/* A heat map: two hues for the sign, opacity for the size, so that zero is the background, and `most`
   has the full colour. The cell under the pointer, or chosen by the arrow keys, is framed and passed
   to `report`. */
function heatMap(names, axes, value, most, report) {
  const [width, height, left, top] = [
    340,
    axes[0].categories ? 300 : 284,
    axes[1].categories ? 112 : 62,
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
  axisName(root, names[0], (left + right) / 2, axes[0].categories ? 294 : bottom + 34);
  axisName(root, names[1], 12, (top + bottom) / 2, true);
  return root;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };

/* Place the labels of one side: each category, or round numbers along the grid. */
function heatAxis(root, axis, step, place) {
  if (axis.categories) {
    axis.categories.forEach((name, k) => place((k + 0.5) * step, shorten(name, 12)));
    return;
  }
  const [low, high] = [axis.grid[0], axis.grid[axis.grid.length - 1]];
  const at = scale(low, high, 0.5 * step, (axis.grid.length - 0.5) * step);
  for (const t of ticks(low, high, 4)) place(at(t), mark(t));
}

/* The legend of the colours of all heat maps. */
function legend(most, text) {
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
    make("span", { text }),
    make("span", { text: signed(-most) }),
    root,
    make("span", { text: signed(most) }),
  );
}
