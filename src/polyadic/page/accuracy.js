/* How good the model is: charts of predicted and actual values. */

function accuracy(data, state) {
  const lead = `Measured on ${rowsPassed(data)} for this page. If the model was not trained on them, this is its accuracy on new rows.`;
  const options = { id: "accuracy", title: "How good it is", lead };
  const { classification, regression } = data.quality;
  if (!classification) {
    const [shown, rest] = divide(regression, 2);
    const many = regression.length > 1;
    const charts = (all) =>
      all.flatMap((own) => [regressionChart(data, own, many), errorList(data, own, many)]);
    const others = rest.length
      ? more(`${rest.length} more outputs`, {}, (inside) =>
          inside.append(make("div", { class: "measured" }, ...charts(rest))),
        )
      : null;
    return section(options, make("div", { class: "measured" }, ...charts(shown)), others);
  }
  const { decisions: own, matrix } = classification;
  return section(
    options,
    ...(own ? [decisions(data, own, state)] : []),
    make(
      "div",
      { class: "measured" },
      ...(own ? [gainFigure(data, own, state)] : []),
      reliability(data, classification.bins),
      matrix ? confusions(data.classes, matrix) : null,
    ),
  );
}

function regressionChart(data, own, many) {
  const all = own.points.flat().concat(own.bins.flatMap(([f, t]) => [f, t]));
  const sorted = [...all].sort((a, b) => a - b);
  const axes = widen([
    sorted[Math.floor(0.002 * sorted.length)],
    sorted[Math.ceil(0.998 * sorted.length) - 1],
  ]);
  const name = withUnit(data, many ? own.name : data.target);
  const chart = agreement({
    points: own.points,
    bins: own.bins,
    axes,
    names: [`predicted ${name}`, `actual ${name}`],
    title: "Predicted against actual values",
  });
  return make(
    "figure",
    { class: "wide" },
    make("h3", { text: many ? own.name : "Predicted and actual" }),
    chart,
    make("figcaption", {
      text: `Dots: ${format(own.points.length)} of the rows. Line: ${own.level === null ? "means of tenths" : `${own.constant} of each tenth`} of the rows, by their prediction; on the dashed line, predictions are right${own.level === null ? " on average" : ""}.`,
    }),
  );
}

/* How far predictions are off, for growing shares of the rows. */
function errorList(data, own, many) {
  const unit = data.units.get(many ? own.name : data.target);
  const rows = own.within.map(([share, error]) =>
    make(
      "li",
      {},
      make("strong", { text: percent(share) }),
      make("span", { text: `of the rows are off by at most ${format(error)}${unit ? ` ${unit}` : ""}` }),
    ),
  );
  return make(
    "div",
    {},
    make("h3", { text: many ? `How far off: ${own.name}` : "How far off it is" }),
    make("ul", { class: "figures" }, ...rows),
  );
}

function reliability(data, bins) {
  const names =
    data.classes.length === 2
      ? [`predicted probability of ${shorten(data.classes[1], 18)}`, "share of the rows"]
      : ["probability of the predicted class", "share that is right"];
  return make(
    "figure",
    { class: "wide" },
    make("h3", { text: "Can its probabilities be trusted?" }),
    agreement({
      points: [],
      bins,
      axes: [0, 1],
      names,
      title: "Reliability diagram",
      write: markShare,
      tell: percent,
    }),
    make("figcaption", {
      text: "Each dot is a tenth of the rows, by their predicted probability. On the dashed line, a probability of 70 % comes true in 70 of 100 cases.",
    }),
  );
}

/* Which of many classes are taken for which. */
function confusions(classes, matrix) {
  const rows = matrix.map((counts, k) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", text: classes[k], title: classes[k] }),
      ...counts.map((count, j) =>
        make("td", { class: j === k ? "end right" : count ? "end" : "end none", text: format(count) }),
      ),
    ),
  );
  return make(
    "figure",
    { class: classes.length > 8 ? "confusions all" : "confusions" },
    make("h3", { text: "Which classes are confused?" }),
    tableOf("Rows by actual and predicted class", ["actual", ...classes], rows),
    make("figcaption", { text: "Rows by their actual class (down) and the predicted one (across)." }),
  );
}
