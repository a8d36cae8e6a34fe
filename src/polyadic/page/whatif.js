/* The what-if panel: a control for every column, the prediction, and why. */

const MOST_BARS = 12;
const FILTER_FROM = 13; // number of columns from which there is a search box

function whatif(data, state) {
  const controls = make("div", {
    class: "controls",
    role: "group",
    "aria-label": "Values of the columns",
  });
  const holders = new Map();
  for (const n of data.importance.strongest) {
    const control =
      data.columns[n].kind === "numeric"
        ? numberControl(data.columns[n], n, state)
        : categoryControl(data.columns[n], n, state);
    holders.set(n, control);
    controls.append(control.root);
  }
  state.onRow(() => holders.forEach((control, n) => control.show(state.values[n])));
  const result = make("div", { class: "result" }, now(data, state), reasons(data, state));
  const left = make(
    "div",
    { class: "left" },
    make(
      "div",
      { class: "tools" },
      origin(data, state),
      data.columns.length >= FILTER_FROM ? finder(data, holders) : null,
    ),
    controls,
  );
  return section(
    "whatif",
    "What if",
    `Move a column and see the prediction change, with exact Shapley values, computed here in your browser. Sliders move in equal shares of ${data.background}, not in equal steps of the range; any number can be typed beside them.`,
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

function numberControl(column, n, state) {
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
    make("label", { class: "name", for: id, text: column.name, title: column.name }),
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

function categoryControl(column, n, state) {
  const id = `column-${n}`;
  const choice = make("select", { id });
  choice.append(make("option", { value: -1, text: "(missing or unseen)" }));
  column.categories.forEach((name, k) => choice.append(make("option", { value: k, text: name })));
  choice.addEventListener("change", () => state.set(n, Number(choice.value)));
  const hidden = column.total - column.categories.length;
  const root = make(
    "div",
    { class: "control", "data-column": n },
    make("label", { class: "name", for: id, text: column.name, title: column.name }),
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

function finder(data, holders) {
  const box = make("input", {
    type: "search",
    id: "find",
    placeholder: "Find a column",
    "aria-label": "Find a column",
  });
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase();
    holders.forEach(
      ({ root }, n) => (root.hidden = !data.columns[n].name.toLowerCase().includes(wanted)),
    );
  });
  return box;
}

/* Which row the values came from, and a button that restores it. */
function origin(data, state) {
  const text = make("span", { id: "origin" });
  const back = make("button", { type: "button", id: "back", text: "Back to this row" });
  back.addEventListener("click", () => state.pick(state.row));
  const showOrigin = () => {
    const changed = state.changed();
    const names = changed
      .slice(0, 3)
      .map((n) => shorten(data.columns[n].name, 24))
      .join(", ");
    const more = changed.length > 3 ? ` and ${changed.length - 3} more` : "";
    text.textContent = `Row ${format(data.rows.numbers[state.row])}${changed.length ? `, with another ${names}${more}` : ""}`;
    back.hidden = changed.length === 0;
  };
  state.onMove(showOrigin);
  return make("div", { class: "origin" }, text, back);
}

// ---- the prediction -----------------------------------------------------------------------------

function now(data, state) {
  const figure = make("output", { id: "prediction", "aria-live": "polite", "aria-atomic": "true" });
  const what = make("span", { class: "what" });
  const list = make("ul", { class: "bars classes" });
  const labels = data.classes || data.outputs;
  const rows = labels.length > 1 ? labels.map((name) => shareRow(list, name)) : [];
  state.onMove(() => {
    const { predicted } = state;
    figure.dataset.raw = JSON.stringify(Array.from(state.raw));
    figure.dataset.predicted = JSON.stringify(predicted);
    const best = predicted.indexOf(Math.max(...predicted));
    if (data.classes) {
      figure.textContent = data.classes[best];
      what.textContent = `${data.target}, with a probability of ${percent(predicted[best])}`;
    } else {
      figure.textContent = format(predicted[state.output]);
      what.textContent =
        data.outputs.length > 1 ? data.outputs[state.output] : `predicted ${data.target}`;
    }
    const [low, high] = data.classes ? [0, 1] : extent([0, ...predicted]);
    rows.forEach((row, k) => {
      placeBar(row.bar, scale(low, high, 0, 1)(0), scale(low, high, 0, 1)(predicted[k]));
      row.number.textContent = data.classes ? percent(predicted[k]) : format(predicted[k]);
    });
  });
  return make("div", { class: "now" }, what, figure, rows.length ? list : null);
}

function shareRow(list, name) {
  const bar = make("span", { class: "bar" });
  const number = make("span", { class: "number" });
  list.append(
    make(
      "li",
      {},
      make("span", { class: "name", text: name, title: name }),
      make("span", { class: "track" }, bar),
      number,
    ),
  );
  return { bar, number };
}

// ---- why ----------------------------------------------------------------------------------------

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
  const title = make("h3");
  state.onMove(() => {
    const { shapley } = state;
    const order = Array.from(shapley, (_, n) => n).sort(
      (a, b) => Math.abs(shapley[b]) - Math.abs(shapley[a]),
    );
    const [base, raw] = state.ends();
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
        step(change, largest),
        change > 0 ? "rise" : "fall",
      );
      if (k < shown) row.root.dataset.column = order[k];
    });
    start.show(place(base), place(base), format(base), "point");
    end.show(place(raw), place(raw), format(raw), "point");
    const probable = state.scale === "probability";
    start.name(probable ? "at the average score" : "average", "");
    const name = data.classes && data.classes[data.outputs.length > 1 ? state.output : 1];
    title.textContent = `Why: Shapley values of ${probable ? `the probability of ${name}` : state.scaleName()}`;
    caption.textContent = `${probable ? "The probability at the average score," : "The average"} ${format(base)} and the bars, ${signed(raw - base, 4)} together, add up to ${format(raw)}.`;
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

// ---- rows to pick from --------------------------------------------------------------------------

function rowTable(data, state) {
  const { numbers, target } = data.rows;
  const columns = data.importance.strongest.slice(0, 40);
  const heads = [
    "row",
    ...(target ? [`actual ${shorten(data.target, 24)}`] : []),
    "predicted",
    ...columns.map((n) => data.columns[n].name),
  ];
  const rows = numbers.map((number, k) => {
    const button = make("button", {
      type: "button",
      text: format(number),
      "aria-label": `Put row ${format(number)} into the what-if panel`,
    });
    const actual = target
      ? [
          make("td", {
            class: "end",
            text:
              typeof target[k] === "string" ? target[k] : target[k].map((t) => format(t)).join(", "),
          }),
        ]
      : [];
    const row = make(
      "tr",
      { "data-row": k },
      make("th", { scope: "row" }, button),
      ...actual,
      make("td", { class: "end strong", text: state.predictedText(k) }),
      ...columns.map((n) =>
        make("td", {
          class: data.columns[n].kind === "numeric" ? "end" : "",
          text: state.cellText(k, n),
        }),
      ),
    );
    row.addEventListener("click", () => state.pick(k));
    return row;
  });
  state.onRow(() =>
    rows.forEach((row, k) => {
      row.classList.toggle("picked", k === state.row);
      row.querySelector("button").setAttribute("aria-pressed", k === state.row);
    }),
  );
  return make(
    "div",
    { class: "rows" },
    make("h3", { text: "Rows to start from" }),
    make("p", {
      class: "note",
      text: `${numbers.length} of the rows passed, evenly spaced from the lowest to the highest ${data.outputs.length > 1 ? `score of ${data.outputs[0]}` : "prediction"}. Pick one to put it into the panel.`,
    }),
    tableOf("Rows to start from", heads, rows),
  );
}
