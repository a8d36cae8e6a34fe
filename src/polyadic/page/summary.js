/* The head of the page: three sentences and the accuracy beside a baseline; and its foot. */

const FEW_ROWS = 100; // with fewer rows the accuracy is rough

const rowsPassed = (data) =>
  data.n_rows === 1 ? "the one row passed" : `the ${format(data.n_rows)} rows passed`;
const targetName = (data) => (data.target === "target" ? "the target" : withUnit(data, data.target));

/* What is predicted, and how well. */
function whatSentence(data) {
  const { classes, outputs, quality } = data;
  const what = classes
    ? classes.length === 2
      ? `${targetName(data)}, “${classes[0]}” or “${classes[1]}”`
      : `${targetName(data)}, one of ${classes.length} classes`
    : outputs.length > 1
      ? `${outputs.length} numbers, ${listed(outputs.slice(0, 6))}${outputs.length > 6 ? " ..." : ""}`
      : targetName(data);
  const start = `This model predicts ${what}`;
  if (!quality) return `${start}; no targets were passed, so this page cannot tell how well.`;
  if (classes) {
    const { measures, constant } = quality.classification;
    const [{ value, baseline }] = measures;
    return `${start}: it is right for ${percent(value)} of ${rowsPassed(data)}, against ${percent(baseline)} if ${constant} were always predicted.`;
  }
  if (outputs.length > 1) return `${start}${explainedRange(data)}.`;
  const { measures, constant, level } = quality.regression[0];
  const [explained, , absolute] = measures;
  if (level !== null)
    return `This model predicts ${constant} of ${what}: ${percent(measures[2].value)} of ${rowsPassed(data)} are at or below their prediction, and ${percent(level)} are wanted.`;
  const r2 = explained.value === null ? "" : ` (R² ${format(explained.value)})`;
  return `${start}: on ${rowsPassed(data)} it is off by ${format(absolute.value)} on average, against ${format(absolute.baseline)} if ${constant} were always predicted${r2}.`;
}

function explainedRange(data) {
  const found = data.quality.regression.map((own) => own.measures[0].value).filter((r) => r !== null);
  if (!found.length) return "";
  const [low, high] = extent(found);
  const { constant, measures } = data.quality.regression[0];
  if (measures[0].name !== "R²")
    return `: on ${rowsPassed(data)} it avoids a share of ${format(low)} to ${format(high)} of the pinball loss of always predicting ${constant}`;
  return `: on ${rowsPassed(data)} R² is from ${format(low)} to ${format(high)}, against 0 if ${constant} were always predicted`;
}

/* Which columns matter most. */
function whySentence(data) {
  if (!data.importance)
    return "Which columns matter is left out: the foot of this page says why.";
  const { total } = data.importance;
  const name = (n) => data.columns[n].name;
  const [first, ...rest] = data.order.filter((n) => total[n] >= 0.001).slice(0, 3);
  if (first === undefined) return "No column matters: the model predicts the same for every row.";
  const others = listed(rest.map((n) => `${name(n)} (${percent(total[n])})`));
  const follow = rest.length ? `; ${others} follow${rest.length > 1 ? "" : "s"}` : "";
  return `What matters most is ${name(first)}, with a part in ${percent(total[first])} of the variance of ${variedName(data)}${follow}.`;
}

/* A caution, or else the strongest interaction. */
function cautionSentence(data) {
  const caution = cautionOf(data);
  if (caution) return caution;
  const names = (pair) => pair.columns.map((n) => data.columns[n].name);
  if (data.pairs.length) {
    const [strongest] = data.pairs;
    return `The strongest interaction is that of ${listed(names(strongest))}, with ${percent(strongest.share)} of the variance: what one of them does depends on the other.`;
  }
  if (data.columns.length === 1) return "There is one column only, so there are no interactions.";
  if (!data.weak_pairs) return "What columns do together is left out: the foot of this page says why.";
  return `No pair of columns stands out: each has less than ${percent(data.weak_pairs.below)} of the variance, all pairs together ${percent(data.weak_pairs.share)}.`;
}

function cautionOf(data) {
  if (!data.quality) return "";
  const own = data.quality.classification || data.quality.regression[0];
  const [{ value, baseline }] = own.measures;
  if (value !== null && value <= baseline)
    return `Caution: on these rows the model is no better than always predicting ${own.constant}.`;
  if (data.n_rows < FEW_ROWS)
    return `Caution: ${data.n_rows === 1 ? "one row is" : `${data.n_rows} rows are`} few, so that the accuracy on other rows may be quite different.`;
  return "";
}

function threeSentences(data) {
  const texts = [whatSentence(data), whySentence(data), cautionSentence(data)];
  return make("div", { id: "summary" }, ...texts.map((text) => make("p", { text })));
}

/* The measures of the explained output beside those of a constant prediction. */
function headline(data, state) {
  if (!data.quality) return null;
  const root = make("div", { id: "measures" });
  const paint = () => {
    const own = data.quality.classification || data.quality.regression[state.output];
    root.replaceChildren(measureCards(own, data.outputs.length > 1 && !data.classes));
  };
  state.onOutput(paint);
  paint();
  return root;
}

function measureCards({ name, measures }, named) {
  const cards = measures.map(({ name: title, kind, value, baseline, by }) =>
    make(
      "div",
      { class: "card" },
      make("span", { class: "what", text: named ? `${title}, ${name}` : title }),
      make("span", { class: "figure", text: measured(value, kind) }),
      make("span", { class: "what", text: `${by}: ${measured(baseline, kind)}` }),
    ),
  );
  return make("div", { class: "cards" }, ...cards);
}

/* What engineers look for: closed at first. */
function footer(data) {
  const pairs = data.facts.map(([name, text]) =>
    make("div", {}, make("dt", { text: name }), make("dd", { text })),
  );
  const lost = data.left_out.length
    ? [make("h3", { text: "Left out" }), ...data.left_out.map((text) => make("p", { text }))]
    : [];
  return make(
    "details",
    { id: "about" },
    make("summary", {}, make("h2", { text: "About this model and this page" })),
    make(
      "div",
      { class: "inside" },
      make("p", { class: "lead", text: data.summary }),
      make("dl", { class: "facts" }, ...pairs),
      ...lost,
      make("p", {
        text: `Made by polyadic ${data.version}. Everything on this page is computed from the model inside it, in closed form; averages treat the columns as independent, with the marginals of ${data.background}. Nothing is loaded or sent.`,
      }),
    ),
  );
}
