/* The what-if panel: a control for every column, the prediction, and why. */

const MOST_BARS = 12;
const CONTROLS = 12; // columns with a control at once
const FILTER_FROM = 13; // number of columns from which there is a search box

function whatif(data, state) {
  const [shown, rest] = divide(data.order, CONTROLS);
  const holders = new Map();
  const build = (n) => {
    const kind = data.columns[n].kind === "numeric" ? numberControl : categoryControl;
    holders.set(n, kind(data, n, state));
    return holders.get(n).root;
  };
  const others = rest.length
    ? more(`${rest.length} more columns`, { id: "more-controls" }, (inside) =>
        inside.append(...rest.map(build)),
      )
    : null;
  const controls = make(
    "div",
    { class: "controls", role: "group", "aria-label": "Values of the columns" },
    ...shown.map(build),
    others,
  );
  others?.complete();
  state.onRow(() => holders.forEach((control, n) => control.show(state.values[n])));
  const result = make(
    "div",
    { class: "result" },
    now(data, state),
    data.importance ? reasons(data, state) : null,
  );
  const left = make(
    "div",
    { class: "left" },
    make(
      "div",
      { class: "tools" },
      rowChoice(data, state),
      data.columns.length >= FILTER_FROM ? finder(data, holders, others) : null,
      origin(data, state),
    ),
    controls,
    more(
      `Table of the ${format(data.rows.numbers.length)} rows to start from`,
      { class: "more rows" },
      (inside) => inside.append(...rowTable(data, state)),
    ),
  );
  const exact = data.importance ? ", with exact Shapley values," : ",";
  return section(
    {
      id: "whatif",
      title: "What if",
      lead: `Change a column and see the prediction change${exact} computed here in your browser. Sliders move in equal shares of ${data.background}, not in equal steps of the range; any number can be typed beside them.`,
    },
    make("div", { class: "whatif" }, left, result),
  );
}

// ---- controls -----------------------------------------------------------------------------------

function nearest(stops, x) {
  let best = 0;
  for (let k = 1; k < stops.length; k++)
    if (Math.abs(stops[k] - x) < Math.abs(stops[best] - x)) best = k;
  return best;
}

/* Write a number for its input box, without digits that are only rounding errors. */
function brief(x) {
  const whole = Math.ceil(Math.log10(Math.abs(x) + 1));
  return String(Number(x.toPrecision(Math.min(Math.max(6, whole + 2), 17))));
}

/* The name of a column beside its control, with its unit. */
function controlName(data, n, id) {
  const { name } = data.columns[n];
  const unit = data.units.has(name)
    ? make("small", { text: ` ${data.units.get(name)}` })
    : null;
  return make("label", { class: "name", for: id, title: name }, make("span", { text: name }), unit);
}

function numberControl(data, n, state) {
  const column = data.columns[n];
  const { stops } = column;
  const id = `column-${n}`;
  const slider = make("input", {
    type: "range",
    id: `${id}-slider`,
    min: 0,
    max: stops.length - 1,
    step: 1,
    "aria-label": `${column.name}, slider`,
    disabled: stops.length < 2,
  });
  const box = make("input", { type: "number", id, step: "any" });
  const missing = make("input", { type: "checkbox", id: `${id}-missing` });
  const root = make(
    "div",
    { class: "control", "data-column": n },
    controlName(data, n, id),
    slider,
    box,
    make("label", { class: "missing" }, missing, make("span", { text: "missing" })),
  );
  let known = stops[Math.floor(stops.length / 2)];
  /* Show a value in all inputs but the one that the user is moving. */
  const show = (x, active) => {
    const absent = Number.isNaN(x);
    if (!absent) known = x;
    missing.checked = absent;
    root.classList.toggle("absent", absent);
    root.dataset.value = x;
    if (active !== box) box.value = absent ? "" : brief(x);
    if (active !== slider && !absent) slider.value = nearest(stops, x);
    slider.setAttribute("aria-valuetext", describeValue(column, x));
  };
  const move = (x, active) => {
    show(x, active);
    state.set(n, x);
  };
  slider.addEventListener("input", () => move(stops[Number(slider.value)], slider));
  box.addEventListener("input", () => move(box.valueAsNumber, box));
  missing.addEventListener("change", () => move(missing.checked ? NaN : known, missing));
  return { root, show };
}

function categoryControl(data, n, state) {
  const column = data.columns[n];
  const id = `column-${n}`;
  const choice = make("select", { id });
  choice.append(make("option", { value: -1, text: "(missing or unseen)" }));
  column.categories.forEach((name, k) => choice.append(make("option", { value: k, text: name })));
  choice.addEventListener("change", () => state.set(n, Number(choice.value)));
  const hidden = column.total - column.categories.length;
  const root = make(
    "div",
    { class: "control", "data-column": n },
    controlName(data, n, id),
    choice,
    hidden > 0
      ? make("p", {
          class: "note",
          text: `The ${format(column.categories.length)} most frequent of ${format(column.total)} categories; the model has the others too, this page does not.`,
        })
      : null,
  );
  return { root, show: (code) => (choice.value = code) };
}

function finder(data, holders, others) {
  const box = make("input", {
    type: "search",
    id: "find",
    placeholder: "Find a column",
    "aria-label": "Find a column",
  });
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase();
    if (others && wanted) others.open = true;
    holders.forEach(
      ({ root }, n) => (root.hidden = !data.columns[n].name.toLowerCase().includes(wanted)),
    );
  });
  return box;
}

// ---- the prediction -----------------------------------------------------------------------------

const MOST_SHARES = 5; // classes or outputs with a bar

function now(data, state) {
  const figure = make("output", { id: "prediction", "aria-live": "polite", "aria-atomic": "true" });
  const what = make("span", { class: "what" });
  const beside = make("span", { class: "what", id: "beside" });
  const list = make("ul", { class: "bars classes" });
  const labels = data.classes || data.outputs;
  const count = Math.min(labels.length, MOST_SHARES);
  const rows = labels.length > 1 ? Array.from({ length: count }, () => shareRow(list)) : [];
  const rest = make("p", { class: "note rest" });
  const paint = () => {
    const { predicted } = state;
    figure.dataset.raw = JSON.stringify(Array.from(state.raw));
    figure.dataset.predicted = JSON.stringify(predicted);
    figure.textContent = data.classes
      ? data.classes[state.called()]
      : format(predicted[state.output]);
    what.textContent = `predicted ${withUnit(data, data.outputs.length > 1 && !data.classes ? data.outputs[state.output] : data.target)}`;
    beside.textContent = besideText(data, state);
    const order = shownShares(data, predicted, count);
    const [low, high] = data.classes ? [0, 1] : extent([0, ...predicted]);
    const place = scale(low, high, 0, 1);
    rows.forEach((row, k) => row.show(labels[order[k]], place(0), place(predicted[order[k]]),
      data.classes ? percent(predicted[order[k]]) : format(predicted[order[k]])));
    if (labels.length > count)
      rest.textContent = data.classes
        ? `${labels.length - count} other classes together ${percent(Math.max(1 - order.reduce((sum, k) => sum + predicted[k], 0), 0))}`
        : `and ${labels.length - count} other outputs`;
  };
  state.onMove(paint);
  state.onThreshold(paint);
  const head = make("div", { class: "head" }, what, figure, beside);
  return make("div", { class: "now" }, head, ...(rows.length ? [list, rest] : []));
}

/* What stands beside the prediction: its probability and its score, or the average. */
function besideText(data, state) {
  const { predicted, raw, base } = state;
  if (data.link === "logistic") {
    const other = state.threshold === 0.5 ? "" : `, threshold ${percent(state.threshold)}`;
    return `probability of ${shorten(data.classes[1], 24)} ${percent(predicted[1])}, log-odds ${format(raw[0])}${other}`;
  }
  if (data.classes) {
    const best = state.called();
    const score = data.outputs.length > 1 ? raw[best] : raw[0];
    return `probability ${percent(predicted[best])}, score ${format(score)}`;
  }
  if (data.link !== "identity" || !data.importance) return "";
  const change = raw[state.output] - base[state.output];
  return `${format(Math.abs(change))} ${change < 0 ? "below" : "above"} the average of ${format(base[state.output])}`;
}

/* All of few classes, in their order; of many, the most probable ones. */
function shownShares(data, predicted, count) {
  const order = predicted.map((_, k) => k);
  if (data.classes && predicted.length > count) order.sort((a, b) => predicted[b] - predicted[a]);
  return order.slice(0, count);
}

function shareRow(list) {
  const bar = make("span", { class: "bar" });
  const number = make("span", { class: "number" });
  const name = make("span", { class: "name" });
  list.append(make("li", {}, name, make("span", { class: "track" }, bar), number));
  return {
    show(text, from, to, value) {
      name.textContent = text;
      name.title = text;
      placeBar(bar, from, to);
      number.textContent = value;
    },
  };
}

// ---- why ----------------------------------------------------------------------------------------

/* Write a change of a probability. */
const points = (change) =>
  `${change < -0.0005 ? "−" : change > 0.0005 ? "+" : ""}${(100 * Math.abs(change)).toFixed(1)}${PER_CENT}`;

/* A waterfall: from the average, column by column, the largest step first, to the prediction. */
function reasons(data, state) {
  const list = make("ol", { class: "bars waterfall", id: "shapley" });
  const start = reasonRow("average");
  const end = reasonRow("this row");
  start.root.classList.add("edge");
  end.root.classList.add("edge");
  const N = data.columns.length;
  const shown = Math.min(N, N > MOST_BARS + 1 ? MOST_BARS : N);
  const rows = Array.from({ length: shown }, () => reasonRow(""));
  const others = N > shown ? reasonRow(`other ${N - shown} columns`) : null;
  list.append(
    start.root,
    ...rows.map((row) => row.root),
    ...(others ? [others.root] : []),
    end.root,
  );
  const caption = make("p", { class: "note", id: "sum" });
  const scored = ["logistic", "softmax"].includes(data.link); // probabilities beside the scores
  const title = make("h3");
  state.onMove(() => {
    const { shapley } = state;
    const order = Array.from(shapley, (_, n) => n).sort(
      (a, b) => Math.abs(shapley[b]) - Math.abs(shapley[a]),
    );
    const [base, raw] = state.ends();
    const probable = state.scale === "probability";
    const whole = probable ? percent : format;
    const steps = order.slice(0, shown).map((n) => shapley[n]);
    if (others) steps.push(order.slice(shown).reduce((sum, n) => sum + shapley[n], 0));
    const path = [base];
    for (const change of steps) path.push(path[path.length - 1] + change);
    const largest = Math.max(...steps.map(Math.abs), 1e-300);
    const place = scale(...widen(extent(path)), 0, 1);
    list.dataset.output = state.output;
    list.dataset.base = base;
    list.dataset.values = JSON.stringify(Array.from(shapley));
    steps.forEach((change, k) => {
      const row = k < shown ? rows[k] : others;
      if (k < shown) row.name(`${data.columns[order[k]].name}`, state.valueText(order[k]));
      row.show(
        place(path[k]),
        place(path[k + 1]),
        probable ? points(change) : step(change, largest),
        change > 0 ? "rise" : "fall",
      );
      if (k < shown) row.root.dataset.column = order[k];
    });
    start.show(place(base), place(base), whole(base), "point");
    end.show(place(raw), place(raw), whole(raw), "point");
    const chance = (shares) =>
      scored && !probable ? percent(shares[data.outputs.length > 1 ? state.output : 1]) : "";
    start.name(probable ? "at the average score" : "average", chance(state.baseline));
    end.name("this row", chance(state.predicted));
    const name = data.classes && data.classes[data.outputs.length > 1 ? state.output : 1];
    title.textContent = `Why: Shapley values of ${probable ? `the probability of ${name}` : state.scaleName()}`;
    caption.textContent = `${probable ? "The probability at the average score," : "The average"} ${whole(base)} and the bars, ${probable ? points(raw - base) : signed(raw - base, 4)} together, add up to ${whole(raw)}.`;
  });
  return make("div", { class: "why" }, title, scaleChoice(data, state), list, caption);
}

/* A box that turns the waterfall of a class into one of its probability. */
function scaleChoice(data, state) {
  if (!["logistic", "softmax"].includes(data.link)) return null;
  const box = make("input", { type: "checkbox", id: "probabilities" });
  box.addEventListener("change", () => state.rescale(box.checked ? "probability" : "raw"));
  return make("label", { class: "choice" }, box, make("span", { text: "As probabilities" }));
}

function reasonRow(text) {
  const name = make("span", { class: "name" }, make("span", { text }), make("small", {}));
  const bar = make("span", { class: "bar" });
  const number = make("span", { class: "number" });
  const root = make("li", {}, name, make("span", { class: "track" }, bar), number);
  return {
    root,
    name(column, value) {
      name.firstChild.textContent = column;
      name.lastChild.textContent = value;
      name.title = value ? `${column} ${value}` : column;
    },
    show(from, to, text, kind) {
      placeBar(bar, from, to);
      bar.className = `bar ${kind}`;
      number.textContent = text;
    },
  };
}
