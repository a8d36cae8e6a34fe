/* The sections about the model: what it is, how good it is, what it has learnt. */

function section(id, title, lead, ...children) {
  return make(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title`, text: title }),
    lead ? make("p", { class: "lead", text: lead }) : null,
    ...children,
  );
}

function tableOf(caption, heads, rows) {
  const head = make(
    "tr",
    {},
    ...heads.map((text, k) =>
      make("th", {
        scope: "col",
        text,
        class: rows[0].children[k].classList.contains("end") && "end",
      }),
    ),
  );
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make(
      "table",
      {},
      make("caption", { class: "unseen", text: caption }),
      make("thead", {}, head),
      make("tbody", {}, ...rows),
    ),
  );
}

// ---- overview -----------------------------------------------------------------------------------

function overview(data) {
  const pairs = data.facts.map(([name, text]) =>
    make("div", {}, make("dt", { text: name }), make("dd", { text })),
  );
  return make(
    "div",
    {},
    make("p", { class: "lead", text: data.summary }),
    make("dl", { class: "facts" }, ...pairs),
  );
}

// ---- accuracy -----------------------------------------------------------------------------------

function measureCards(measures) {
  const cards = measures.map(([name, value]) =>
    make(
      "div",
      { class: "card" },
      make("span", { class: "figure", text: format(value) }),
      make("span", { class: "what", text: name }),
    ),
  );
  return make("div", { class: "cards" }, ...cards);
}

function accuracy(data) {
  const lead = `Measured on the ${format(data.n_rows)} rows that were passed for this page. If the model was not trained on them, this is its accuracy on new rows.`;
  if (data.quality.classification)
    return section("accuracy", "How good it is", lead, classAccuracy(data));
  const many = data.quality.regression.length > 1;
  const parts = data.quality.regression.map((own) => regressionAccuracy(own, many));
  return section("accuracy", "How good it is", lead, ...parts);
}

function regressionAccuracy(own, many) {
  const all = own.points.flat().concat(own.bins.flatMap(([f, t]) => [f, t]));
  const sorted = [...all].sort((a, b) => a - b);
  const axes = widen([
    sorted[Math.floor(0.002 * sorted.length)],
    sorted[Math.ceil(0.998 * sorted.length) - 1],
  ]);
  const chart = agreement({
    points: own.points,
    bins: own.bins,
    axes,
    names: ["predicted", "actual"],
    title: "Predicted against actual values",
  });
  return make(
    "div",
    { class: "measured" },
    make("div", {}, many ? make("h3", { text: own.name }) : null, measureCards(own.measures)),
    make(
      "figure",
      { class: "wide" },
      chart,
      make("figcaption", {
        text: `Dots: ${format(own.points.length)} of the rows. Line: means of tenths of the rows, by their prediction; on the dashed line, predictions are right on average.`,
      }),
    ),
  );
}

function classAccuracy(data) {
  const { measures, bins } = data.quality.classification;
  const two = data.classes.length === 2;
  const names = two
    ? [`predicted probability of ${shorten(data.classes[1], 24)}`, "share of the rows"]
    : ["probability of the predicted class", "share that is right"];
  const chart = agreement({ points: [], bins, axes: [0, 1], names, title: "Reliability diagram" });
  return make(
    "div",
    { class: "measured" },
    measureCards(measures),
    make(
      "figure",
      { class: "wide" },
      chart,
      make("figcaption", {
        text: "Each dot is a tenth of the rows, by their predicted probability. On the dashed line, a probability of 70 % comes true in 70 of 100 cases.",
      }),
    ),
  );
}

// ---- importance ---------------------------------------------------------------------------------

function importance(data) {
  const { first, total, orders, strongest } = data.importance;
  const most = Math.max(...total, 1e-300);
  const list = make("ol", { class: "bars" });
  for (const n of strongest.slice(0, 40)) {
    const [whole, alone] = [make("span", { class: "bar pale" }), make("span", { class: "bar" })];
    placeBar(whole, 0, total[n] / most);
    placeBar(alone, 0, Math.min(first[n], total[n]) / most);
    const name = data.columns[n].name;
    list.append(
      make(
        "li",
        {},
        make("span", { class: "name", text: name, title: name }),
        make("span", { class: "track" }, whole, alone),
        make("span", { class: "number", text: percent(total[n]) }),
      ),
    );
  }
  const more =
    strongest.length > 40 ? ` The strongest 40 of ${strongest.length} columns are shown.` : "";
  return section(
    "importance",
    "What matters",
    `Sobol shares: how much of the variance of ${variedName(data)} is due to a column. Strong colour: the column by itself; pale: together with other columns, counted for each of them.${more}`,
    list,
    make("h3", { text: "One column, two, or more at a time" }),
    orderBar(orders),
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
  const grid = make("div", { class: "charts" });
  const L = data.outputs.length;
  let marks = [];
  const curves = () => data.effects.map((effect) => output(effect.values, L, state.output));
  const limitsOf = (values, k) => extent([0, ...inRange(data.effects[k], values)]);
  const shared = make("input", { type: "checkbox", id: "shared" });
  shared.checked = comparable(curves().map(limitsOf));
  const paint = () => {
    const all = curves();
    const ranges = all.map(limitsOf);
    const whole = widen(extent(ranges.flat()));
    marks = data.effects.map((effect, k) => {
      const name = data.columns[effect.column].name;
      const limits = shared.checked ? whole : widen(ranges[k]);
      const chart = effect.categories
        ? effectBars(effect, all[k], limits)
        : effectCurve(name, effect, all[k], limits);
      grid.append(make("figure", {}, make("h3", { text: name, title: name }), chart.root));
      return () => chart.mark(state.values[effect.column]);
    });
    marks.forEach((mark) => mark());
  };
  const repaint = () => {
    grid.replaceChildren();
    paint();
  };
  shared.addEventListener("change", repaint);
  state.onOutput(repaint);
  state.onMove(() => marks.forEach((mark) => mark()));
  paint();
  const more =
    data.columns.length > data.effects.length
      ? ` The strongest ${data.effects.length} of ${data.columns.length} columns are shown.`
      : "";
  const score = data.relative
    ? "the score of the explained class, relative to the mean over the classes"
    : "the raw score of the explained output";
  const lead = `The main effect on ${L > 1 ? score : state.scaleName()}, zero on average; numeric columns from the 1st to the 99th percentile of ${data.background}, whose density is below. The mark is the row of the what-if panel.${more}`;
  return section(
    "effects",
    "What each column does by itself",
    lead,
    make("label", { class: "choice" }, shared, make("span", { text: "One scale for all columns" })),
    explainedNote(data, state),
    grid,
  );
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

function effectBars(effect, values, limits) {
  const list = make("ul", { class: "bars effect" });
  const zero = scale(...limits, 0, 1)(0);
  const largest = Math.max(...values.map(Math.abs));
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
      density,
    );
    list.append(item);
    return item;
  });
  const more = effect.total - effect.categories.length;
  const root = make(
    "div",
    {},
    list,
    more > 0 ? make("p", { class: "note", text: `and ${format(more)} rarer categories` }) : null,
  );
  const mark = (code) =>
    items.forEach((item, k) => item.classList.toggle("current", effect.places[k] === code));
  return { root, mark };
}

// ---- interactions -------------------------------------------------------------------------------

function interactions(data, state) {
  const grid = make("div", { class: "charts maps" });
  const L = data.outputs.length;
  const paint = () =>
    data.pairs.forEach((pair) => grid.append(pairFigure(data, pair, L, state.output)));
  state.onOutput(() => {
    grid.replaceChildren();
    paint();
  });
  paint();
  return section(
    "interactions",
    "What two columns do together",
    `The strongest interactions of two columns: their joint effect without the effects of each by itself. The share is of the variance of ${variedName(data)}. Point at a map, or move over it with the arrow keys, to read its numbers.`,
    explainedNote(data, state),
    grid,
  );
}

function pairFigure(data, pair, L, l) {
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
    names,
    order.map((k) => pair.axes[k]),
    value,
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
    chart.root,
    legend(chart.most),
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
      make("th", { scope: "row", text: column.name }),
      make("td", { text: column.kind }),
      make("td", { text: column.map }),
      make("td", { class: "end", text: column.missing > 0 ? percent(column.missing) : "none" }),
      make("td", { text: spread }),
      make("td", { class: "end", text: percent(data.importance.total[n]) }),
    );
  });
  return section(
    "columns",
    "The columns",
    `As they are in ${data.background}.`,
    tableOf(
      "Columns of the table",
      ["column", "kind", "map", "missing", "5 % · median · 95 %, or most frequent", "total share"],
      rows,
    ),
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
