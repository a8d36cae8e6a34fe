/* What the model has learnt: importance, effects, interactions; and the columns it was given. */

const BARS = 12; // columns with a bar at once
const CHARTS = 6; // columns with an effect curve at once
const MAPS_AT_ONCE = 3;

function importance(data) {
  const { total, orders } = data.importance;
  const most = Math.max(...total, 1e-300);
  const [shown, rest] = divide(data.order, BARS);
  const bars = (columns) =>
    make("ol", { class: "bars" }, ...columns.map((n) => shareBar(data, n, most)));
  const others = rest.length
    ? more(`${rest.length} more columns`, {}, (inside) => inside.append(bars(rest)))
    : null;
  return section(
    {
      id: "importance",
      title: "What matters",
      lead: `Sobol shares: how much of the variance of ${variedName(data)} is due to a column. Strong colour: the column by itself; pale: together with other columns, counted for each of them.`,
    },
    bars(shown),
    others,
    make("h3", { text: "One column, two, or more at a time" }),
    orderBar(orders),
  );
}

function shareBar(data, n, most) {
  const { first, total } = data.importance;
  const [whole, alone] = [make("span", { class: "bar pale" }), make("span", { class: "bar" })];
  placeBar(whole, 0, total[n] / most);
  placeBar(alone, 0, Math.min(first[n], total[n]) / most);
  const name = data.columns[n].name;
  return make(
    "li",
    {},
    make("span", { class: "name", text: name, title: name }),
    make("span", { class: "track" }, whole, alone),
    make("span", { class: "number", text: percent(total[n]) }),
  );
}

function orderBar(orders) {
  const shown = orders.slice(0, 3);
  const rest = orders.slice(3).reduce((a, b) => a + b, 0);
  const names = ["single columns", "pairs", "three together", "four and more"];
  const parts = (orders.length > 3 ? [...shown, rest] : shown).map((share) => Math.max(share, 0));
  const sum = parts.reduce((a, b) => a + b, 0) || 1;
  const bar = make("div", { class: "stack", "aria-hidden": "true" });
  const words = make("ul", { class: "key" });
  parts.forEach((share, k) => {
    const piece = make("span", { class: `piece order${k}` });
    piece.style.width = `${(100 * share) / sum}%`;
    bar.append(piece);
    words.append(
      make(
        "li",
        {},
        make("span", { class: `swatch order${k}`, "aria-hidden": "true" }),
        make("span", { text: `${names[k]} ${percent(share)}` }),
      ),
    );
  });
  return make("div", {}, bar, words);
}

// ---- effects ------------------------------------------------------------------------------------

const output = (values, count, l) =>
  Array.from({ length: values.length / count }, (_, k) => values[k * count + l]);

function effects(data, state) {
  const L = data.outputs.length;
  const [first, rest] = divide(data.effects, CHARTS);
  const grids = [{ own: first, grid: make("div", { class: "charts" }), marks: [] }];
  const curves = () => data.effects.map((effect) => output(effect.values, L, state.output));
  const limitsOf = (values, k) => extent([0, ...inRange(data.effects[k], values)]);
  const shared = make("input", { type: "checkbox", id: "shared" });
  shared.checked = comparable(curves().map(limitsOf));
  const paint = () => {
    const all = curves();
    const ranges = all.map(limitsOf);
    const whole = widen(extent(ranges.flat()));
    for (const part of grids) {
      part.grid.replaceChildren();
      part.marks = part.own.map((effect) => {
        const k = data.effects.indexOf(effect);
        const chart = effectFigure(
          data,
          state,
          effect,
          all[k],
          shared.checked ? whole : widen(ranges[k]),
        );
        part.grid.append(chart.root);
        return () => chart.mark(state.values[effect.column]);
      });
      part.marks.forEach((mark) => mark());
    }
  };
  shared.addEventListener("change", paint);
  state.onOutput(paint);
  state.onMove(() => grids.forEach(({ marks }) => marks.forEach((mark) => mark())));
  paint();
  const others = rest.length
    ? more(`${rest.length} more columns`, {}, (inside) => {
        const grid = make("div", { class: "charts" });
        inside.append(grid);
        grids.push({ own: rest, grid, marks: [] });
        paint();
      })
    : null;
  return section(
    { id: "effects", title: "What each column does by itself", lead: effectsLead(data, state) },
    make("label", { class: "choice" }, shared, make("span", { text: "One scale for all columns" })),
    explainedNote(data, state),
    grids[0].grid,
    others,
  );
}

function effectsLead(data, state) {
  const drawn = data.effects.length;
  const limit =
    data.columns.length > drawn
      ? ` The strongest ${drawn} of ${data.columns.length} columns have a chart.`
      : "";
  const score = data.relative
    ? "the score of the explained class, relative to the mean over the classes"
    : "the raw score of the explained output";
  const chance =
    data.link === "logistic"
      ? " Beside the log-odds is the probability, where all other columns are average."
      : "";
  return `The main effect on ${data.outputs.length > 1 ? score : state.scaleName()}, zero on average; numeric columns from the 1st to the 99th percentile of ${data.background}, whose density is below. The mark is the row of the what-if panel.${chance}${limit}`;
}

/* The name of the axis of an effect: short, with the unit of the target where there is no link. */
function effectName(data, l) {
  if (data.link === "logistic") return "effect on log-odds";
  if (data.link === "softmax") return "effect on score";
  if (data.link === "labels") return "effect on label score";
  const name = data.outputs.length > 1 ? data.outputs[l] : data.target;
  if (data.link === "exp") return `effect on log ${shorten(name, 20)}`;
  const unit = data.units.has(name) ? ` (${data.units.get(name)})` : "";
  return `effect on ${shorten(name, 24 - Math.min(unit.length, 12))}${unit}`;
}

function effectFigure(data, state, effect, values, limits) {
  const { name } = data.columns[effect.column];
  const names = [withUnit(data, name), effectName(data, state.output)];
  const chance =
    data.link === "logistic" && ((x) => engine.LINKS.logistic([state.base[0] + x])[1]);
  const chart = effect.categories
    ? effectBars(effect, values, limits, names, chance)
    : effectCurve(names, effect, values, limits, chance);
  const root = make("figure", {}, make("h3", { text: name, title: name }), chart.root);
  return { root, mark: chart.mark };
}

/* Which of several outputs is shown. */
function explainedNote(data, state) {
  if (data.outputs.length === 1) return null;
  const note = make("p", { class: "note" });
  const show = () =>
    (note.textContent = `${data.classes ? "Class" : "Output"}: ${data.outputs[state.output]}`);
  state.onOutput(show);
  show();
  return note;
}

/* Whether curves can be read on one scale: not where one is far larger than most others. */
function comparable(ranges) {
  const widths = ranges.map(([low, high]) => high - low).sort((a, b) => a - b);
  return widths[widths.length - 1] < 12 * widths[Math.floor(widths.length / 2)];
}

/* The part of a curve between the ends of its chart. */
function inRange(effect, values) {
  if (effect.categories) return values;
  const [low, high] = effect.ends;
  const inside = values.filter((_, k) => effect.grid[k] > low && effect.grid[k] < high);
  return [interpolate(effect.grid, values, low), ...inside, interpolate(effect.grid, values, high)];
}

/* Bars for the most frequent categories, with a head that names what is beside them. */
function effectBars(effect, values, limits, names, chance) {
  const list = make("ul", { class: chance ? "bars effect chances" : "bars effect" });
  const zero = scale(...limits, 0, 1)(0);
  const largest = Math.max(...values.map(Math.abs));
  list.append(
    make(
      "li",
      { class: "head" },
      make("span", { class: "name", text: "category" }),
      make("span", { class: "wide", text: names[1], title: names[1] }),
      chance ? make("span", { class: "number", text: "prob." }) : null,
      make("span", { text: "rows" }),
    ),
  );
  const items = effect.categories.map((name, k) => {
    const bar = make("span", { class: `bar ${values[k] > 0 ? "rise" : "fall"}` });
    placeBar(bar, zero, scale(...limits, 0, 1)(values[k]));
    const density = make("span", {
      class: "share",
      title: `${percent(effect.density[k])} of the rows`,
    });
    const thick = make("span", { class: "grain" });
    thick.style.width = `${100 * effect.density[k]}%`;
    density.append(thick);
    const item = make(
      "li",
      {},
      make("span", { class: "name", text: name, title: name }),
      make("span", { class: "track" }, bar),
      make("span", { class: "number", text: step(values[k], largest) }),
      chance ? make("span", { class: "number", text: percent(chance(values[k])) }) : null,
      density,
    );
    list.append(item);
    return item;
  });
  const beyond = effect.total - effect.categories.length;
  const root = make(
    "div",
    {},
    list,
    beyond > 0 ? make("p", { class: "note", text: `and ${format(beyond)} rarer categories` }) : null,
  );
  const mark = (code) =>
    items.forEach((item, k) => item.classList.toggle("current", effect.places[k] === code));
  return { root, mark };
}

// ---- interactions -------------------------------------------------------------------------------

function interactions(data, state) {
  const L = data.outputs.length;
  const [first, rest] = divide(data.pairs, MAPS_AT_ONCE, 0);
  const grids = [{ own: first, grid: make("div", { class: "charts maps" }) }];
  const key = make("div");
  const paint = () => {
    const most = largestEffect(data.pairs, L, state.output);
    if (first.length) key.replaceChildren(legend(most, effectName(data, state.output)));
    for (const { own, grid } of grids)
      grid.replaceChildren(...own.map((pair) => pairFigure(data, pair, L, state.output, most)));
  };
  state.onOutput(paint);
  paint();
  const others = rest.length
    ? more(`${rest.length} more pairs`, {}, (inside) => {
        const grid = make("div", { class: "charts maps" });
        inside.append(grid);
        grids.push({ own: rest, grid });
        paint();
      })
    : null;
  const how = first.length
    ? ` The share is of the variance of ${variedName(data)}. All maps have one scale of colours. Point at a map, or move over it with the arrow keys, to read its numbers.`
    : "";
  return section(
    {
      id: "interactions",
      title: "What two columns do together",
      lead: `The joint effect of two columns, without the effects of each by itself.${how}`,
    },
    explainedNote(data, state),
    make("p", { class: "note", id: "not-drawn", text: notDrawn(data) }),
    key,
    grids[0].grid,
    others,
  );
}

/* How many pairs have no map, and why. */
function notDrawn(data) {
  const { count, share, below, beyond } = data.weak_pairs;
  const weak =
    count === 0
      ? "No pair is negligible."
      : `${count === 1 ? "1 pair is" : `${format(count)} pairs are`} not drawn: ${count === 1 ? "it has" : "each has"} less than ${percent(below)} of the variance${count === 1 ? "" : `, all together ${percent(share)}`}.`;
  const many = beyond ? ` ${format(beyond)} more with a larger share are not drawn either.` : "";
  return `Drawn: ${format(data.pairs.length)} of ${format(data.pairs.length + count + beyond)} pairs. ${weak}${many}`;
}

/* The largest effect of output l on any map: the end of the scale of colours. */
function largestEffect(pairs, L, l) {
  let most = 0;
  for (const { values } of pairs)
    for (let k = l; k < values.length; k += L) most = Math.max(most, Math.abs(values[k]));
  return most;
}

function pairFigure(data, pair, L, l, most) {
  const turned = pair.axes[0].categories && !pair.axes[1].categories; // long names go to the side
  const order = turned ? [1, 0] : [0, 1];
  const size = (axis) => (axis.categories || axis.grid).length;
  const second = size(pair.axes[1]);
  const value = (i, j) => {
    const [a, b] = turned ? [j, i] : [i, j];
    return pair.values[(a * second + b) * L + l];
  };
  const names = order.map((k) => data.columns[pair.columns[k]].name);
  const hint = make("p", { class: "note readout", "aria-live": "polite", text: "\u00a0" });
  const chart = heatMap(
    names.map((name) => withUnit(data, name)),
    order.map((k) => pair.axes[k]),
    value,
    most,
    (text) => (hint.textContent = text),
  );
  const title = `${names[0]} × ${names[1]}`;
  return make(
    "figure",
    {},
    make(
      "h3",
      {},
      make("span", { text: title, title }),
      make("small", { text: percent(pair.share) }),
    ),
    chart,
    hint,
  );
}

// ---- the table's columns ------------------------------------------------------------------------

function columnTable(data) {
  const rows = data.columns.map((column, n) => {
    const spread =
      column.kind === "numeric"
        ? column.middle.map((m) => describeValue(column, m)).join("  ·  ")
        : topCategories(column);
    return make(
      "tr",
      {},
      make("th", { scope: "row", text: withUnit(data, column.name), title: column.name }),
      make("td", { text: column.kind }),
      make("td", { text: column.map }),
      make("td", { class: "end", text: column.missing > 0 ? percent(column.missing) : "none" }),
      make("td", { text: spread }),
      data.importance
        ? make("td", { class: "end", text: percent(data.importance.total[n]) })
        : null,
    );
  });
  const heads = ["column", "kind", "map", "missing", "5 % · median · 95 %, or most frequent"];
  return section(
    {
      id: "columns",
      title: "The columns",
      lead: `The ${data.columns.length} columns as they are in ${data.background}.`,
      open: false,
    },
    tableOf("Columns of the table", data.importance ? [...heads, "total share"] : heads, rows),
  );
}

function topCategories(column) {
  const order = column.shares.map((_, k) => k).sort((a, b) => column.shares[b] - column.shares[a]);
  const some = order
    .slice(0, 3)
    .map((k) => `${shorten(column.categories[k], 24)} ${percent(column.shares[k])}`);
  const more = column.total - some.length;
  return some.join(", ") + (more > 0 ? `, and ${format(more)} more` : "");
}
