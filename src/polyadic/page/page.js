/* Put the page together: the state of the what-if panel, and the sections around it. */

/* The current row, and the listeners that are called when it changes. */
function openState(data, model) {
  const listeners = { move: [], row: [], output: [], threshold: [] };
  const call = (name) => listeners[name].forEach((listener) => listener());
  const link = engine.LINKS[data.link];
  const missing = (n) => (data.columns[n].kind === "numeric" ? NaN : -1);
  const cell = (k, n) => data.rows.values[n][k] ?? missing(n);
  const same = (a, b) => a === b || (Number.isNaN(a) && Number.isNaN(b));
  const state = {
    row: 0,
    output: 0,
    chosen: false, // whether the user has chosen the explained output
    scale: "raw", // or "probability": of the waterfall
    threshold: 0.5, // on the probability of the second of two classes
    base: engine.base(model),
    baseline: link(engine.base(model)),
    values: [],
    onMove: (listener) => listeners.move.push(listener),
    onRow: (listener) => listeners.row.push(listener),
    onOutput: (listener) => listeners.output.push(listener),
    onThreshold: (listener) => listeners.threshold.push(listener),
    setThreshold(share) {
      state.threshold = share;
      call("threshold");
    },
    set(n, x) {
      state.values[n] = x;
      engine.set(model, n, x);
      state.look();
    },
    pick(k) {
      state.load(k);
      call("row");
      state.look();
      if (!state.chosen && state.output !== state.best()) state.show(state.best());
    },
    load(k) {
      state.row = k;
      data.columns.forEach((_, n) => {
        state.values[n] = cell(k, n);
        engine.set(model, n, state.values[n]);
      });
    },
    explain(l) {
      state.chosen = true;
      state.show(l);
    },
    show(l) {
      state.output = l;
      call("output");
      state.look();
    },
    rescale(scale) {
      state.scale = scale;
      state.look();
    },
    /* The output to explain of this row: the most probable of many classes, or the first number. */
    best: () =>
      data.outputs.length > 1 && data.classes
        ? state.predicted.indexOf(Math.max(...state.predicted))
        : 0,
    /* The class that a row is called. */
    called: () =>
      data.classes.length === 2
        ? Number(state.predicted[1] > state.threshold)
        : state.predicted.indexOf(Math.max(...state.predicted)),
    look() {
      state.raw = engine.raw(model);
      state.predicted = link(state.raw);
      if (data.importance) state.explainRow();
      call("move");
    },
    explainRow() {
      state.shapley =
        state.scale === "raw"
          ? engine.shapley(model, state.output)
          : engine.steps(model, state.output, state.base, state.raw);
    },
    changed: () =>
      data.columns.map((_, n) => n).filter((n) => !same(state.values[n], cell(state.row, n))),
    valueText: (n) => describeValue(data.columns[n], state.values[n]),
    cellText: (k, n) => describeValue(data.columns[n], cell(k, n)),
    scaleName: () => scaleName(data, state.output),
    /* What the steps of the waterfall go from and to. */
    ends() {
      if (state.scale === "raw") return [state.base[state.output], state.raw[state.output]];
      const k = data.outputs.length > 1 ? state.output : 1;
      return [state.baseline[k], state.predicted[k]];
    },
  };
  state.predictedTexts = data.rows.numbers.map((_, k) => {
    state.load(k);
    return predictedText(data, link(engine.raw(model)));
  });
  return state;
}

/* A prediction in a few characters. */
function predictedText(data, predicted) {
  if (!data.classes) return predicted.map((f) => format(f)).join(", ");
  const best = data.classes.length === 2 ? 1 : predicted.indexOf(Math.max(...predicted));
  return `${shorten(data.classes[best], 16)} ${percent(predicted[best])}`;
}

function describeValue(column, x) {
  if (column.kind === "numeric" && Number.isNaN(x)) return "missing";
  if (column.kind === "numeric") return column.part === "year" ? x.toFixed(2) : format(x);
  return x < 0 ? "missing or unseen" : column.categories[x];
}

/* The name of the raw prediction, which Shapley values add up to. */
function scaleName(data, l) {
  if (data.link === "logistic") return `the log-odds of ${data.classes[1]}`;
  if (data.link === "labels")
    return `the label score of ${data.classes[data.classes.length === 2 ? 1 : l]}`;
  if (data.link === "softmax")
    return `the score of ${data.classes[l]}, relative to the mean over the classes`;
  const name = data.outputs.length > 1 ? data.outputs[l] : data.target;
  return data.link === "exp" ? `the logarithm of ${name}` : `the predicted ${name}`;
}

/* What shares are shares of: the raw prediction, where a link follows. */
function variedName(data) {
  if (data.link === "softmax") return "the scores of the classes";
  if (data.outputs.length === 1) return scaleName(data, 0);
  return data.link === "exp" ? "the logarithms of the predictions" : "the predictions";
}

function navigation(data, state, sections) {
  const links = sections.map(([id, text]) => make("a", { href: `#${id}`, text }));
  const nav = make("nav", { "aria-label": "Sections" }, make("div", { class: "links" }, ...links));
  if (data.outputs.length > 1) {
    const choice = make("select", { id: "output" });
    data.outputs.forEach((name, l) => choice.append(make("option", { value: l, text: name })));
    choice.value = state.output;
    choice.addEventListener("change", () => state.explain(Number(choice.value)));
    state.onOutput(() => (choice.value = state.output));
    const what = data.classes ? "Explained class" : "Explained output";
    nav.append(make("label", { class: "explained" }, make("span", { text: what }), choice));
  }
  return nav;
}

/* Keep the height of an element in a property, for parts that stick below it and jump targets. */
function measure(element, property) {
  const update = () =>
    document.documentElement.style.setProperty(property, `${element.offsetHeight}px`);
  new ResizeObserver(update).observe(element);
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const model = engine.open(data.model, data.relative);
  delete data.model;
  Object.assign(data, engine.decode(data));
  data.units = new Map(data.units);
  const state = openState(data, model);
  // A page whose title is white space alone keeps the one that it was written with.
  if (data.title.trim()) document.title = data.title;
  const parts = [
    ["whatif", "What if", () => whatif(data, state)],
    ["accuracy", "Accuracy", data.quality && (() => accuracy(data, state))],
    ["importance", "Importance", data.importance && (() => importance(data))],
    ["effects", "Effects", data.effects.length > 0 && (() => effects(data, state))],
    ["interactions", "Interactions", data.weak_pairs && (() => interactions(data, state))],
    ["columns", "Columns", () => columnTable(data)],
  ].filter(([, , build]) => build);
  state.load(Math.floor(data.rows.numbers.length / 2));
  state.look();
  state.output = state.best();
  const header = document.getElementById("top");
  header.append(
    make("p", { class: "brand", text: "polyadic report" }),
    make("h1", { text: data.title }),
    threeSentences(data),
    ...[headline(data, state)].filter((own) => own),
  );
  const nav = navigation(data, state, parts);
  header.after(nav);
  measure(nav, "--nav");
  document.getElementById("main").replaceChildren(...parts.map(([, , build]) => build()));
  document.getElementById("foot").append(footer(data));
  measure(document.querySelector(".now"), "--card");
  openOnDemand();
  state.pick(state.row);
}

/* Say that something is wrong, where it would be missing: data that were changed, an old browser.
   The first error tells most. Messages without an error, such as those of observers, harm nothing. */
function tell(error) {
  if (!error || document.getElementById("problem")) return;
  const text =
    `A part of this page cannot be shown (${error.message || error}). If its file was changed, ` +
    "write it again with polyadic.report; an old browser may lack what the page needs.";
  document.getElementById("top").prepend(make("p", { id: "problem", role: "alert", text }));
}

addEventListener("error", (event) => tell(event.error));
start();
