/* Put the page together: the state of the what-if panel, and the sections around it. */

/* The current row, and the listeners that are called when it changes. */
function openState(data, model) {
  const listeners = { move: [], row: [], output: [] };
  const call = (name) => listeners[name].forEach((listener) => listener());
  const link = engine.LINKS[data.link];
  const missing = (n) => (data.columns[n].kind === "numeric" ? NaN : -1);
  const cell = (k, n) => data.rows.values[n][k] ?? missing(n);
  const same = (a, b) => a === b || (Number.isNaN(a) && Number.isNaN(b));
  const state = {
    row: Math.floor(data.rows.numbers.length / 2),
    output: 0,
    chosen: false, // whether the user has chosen the explained output
    scale: "raw", // or "probability": of the waterfall
    base: engine.base(model),
    values: [],
    onMove: (listener) => listeners.move.push(listener),
    onRow: (listener) => listeners.row.push(listener),
    onOutput: (listener) => listeners.output.push(listener),
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
    look() {
      state.raw = engine.raw(model);
      state.predicted = link(state.raw);
      state.shapley =
        state.scale === "raw"
          ? engine.shapley(model, state.output)
          : engine.steps(model, state.output, state.base, state.raw);
      call("move");
    },
    changed: () =>
      data.columns.map((_, n) => n).filter((n) => !same(state.values[n], cell(state.row, n))),
    valueText: (n) => describeValue(data.columns[n], state.values[n]),
    cellText: (k, n) => describeValue(data.columns[n], cell(k, n)),
    /* Sets the model to row k: for the table, before the page has a current row. */
    predictedText(k) {
      data.columns.forEach((_, n) => engine.set(model, n, cell(k, n)));
      const predicted = link(engine.raw(model));
      if (!data.classes) return predicted.map((f) => format(f)).join(", ");
      const best = data.classes.length === 2 ? 1 : predicted.indexOf(Math.max(...predicted));
      return `${shorten(data.classes[best], 16)} ${percent(predicted[best])}`;
    },
    scaleName: () => scaleName(data, state.output),
    /* What the steps of the waterfall go from and to. */
    ends() {
      if (state.scale === "raw") return [state.base[state.output], state.raw[state.output]];
      const k = data.outputs.length > 1 ? state.output : 1;
      return [link(state.base)[k], state.predicted[k]];
    },
  };
  return state;
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

/* Set the height of the navigation, for parts that stick below it and for jump targets. */
function measure(nav) {
  const update = () => document.documentElement.style.setProperty("--nav", `${nav.offsetHeight}px`);
  window.addEventListener("resize", update);
  update();
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const model = engine.open(data.model, data.relative);
  delete data.model;
  Object.assign(data, engine.decode(data));
  const state = openState(data, model);
  document.title = data.title;
  const parts = [
    ["whatif", "What if", () => whatif(data, state)],
    ["accuracy", "Accuracy", data.quality && (() => accuracy(data))],
    ["importance", "Importance", () => importance(data)],
    ["effects", "Effects", () => effects(data, state)],
    ["interactions", "Interactions", data.pairs.length > 0 && (() => interactions(data, state))],
    ["columns", "Columns", () => columnTable(data)],
  ].filter(([, , build]) => build);
  const rows = rowTable(data, state);
  state.load(state.row);
  state.look();
  state.output = state.best();
  const header = document.getElementById("top");
  header.append(
    make("p", { class: "brand", text: "polyadic report" }),
    make("h1", { text: data.title }),
    overview(data),
  );
  const nav = navigation(data, state, parts);
  header.after(nav);
  measure(nav);
  document.getElementById("main").replaceChildren(...parts.map(([, , build]) => build()));
  document.getElementById("whatif").append(rows);
  document.getElementById("foot").append(
    make("p", {
      text: `Made by polyadic ${data.version}. Everything on this page is computed from the model inside it, in closed form; averages treat the columns as independent, with the marginals of ${data.background}. Nothing is loaded or sent.`,
    }),
  );
  state.pick(state.row);
  showPicked();
}

/* Scroll the table to the picked row, which is in its middle at the start. */
function showPicked() {
  const picked = document.querySelector("tr.picked");
  const box = picked.closest(".scroll");
  box.scrollTop = picked.offsetTop - box.clientHeight / 2;
}

start();
