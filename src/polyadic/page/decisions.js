/* Two classes: what follows from a threshold on the probability of the second. */

/* Counts at a threshold in per cent, and the shares that follow from them. */
function countsAt(own, at) {
  const [positives, negatives] = own.totals;
  const [right, wrong] = [own.right[at], own.wrong[at]];
  const called = right + wrong;
  const all = positives + negatives;
  return {
    matrix: [
      [negatives - wrong, wrong],
      [positives - right, right],
    ],
    accuracy: (negatives - wrong + right) / all,
    precision: called ? right / called : null,
    recall: positives ? right / positives : null,
    called: called / all,
    lift: called && positives ? right / called / (positives / all) : null,
  };
}

function decisions(data, own, state) {
  const [no, yes] = data.classes.map((name) => shorten(name, 24));
  const slider = make("input", { type: "range", id: "threshold", min: 0, max: 100, step: 1 });
  slider.value = Math.round(100 * state.threshold);
  const value = make("output", { id: "threshold-value", for: "threshold" });
  const cells = [0, 1].map(() => [0, 1].map(() => make("td", { class: "end" })));
  const rows = [no, yes].map((name, k) =>
    make("tr", {}, make("th", { scope: "row", text: `actually ${name}` }), ...cells[k]),
  );
  for (const k of [0, 1]) cells[k][k].classList.add("right");
  const table = tableOf(
    "Rows by actual and predicted class",
    ["rows passed", `called ${no}`, `called ${yes}`],
    rows,
  );
  table.id = "confusion";
  const figures = {
    accuracy: "of all rows are called right",
    precision: `of those called ${yes} are ${yes}`,
    recall: `of all ${yes} are found`,
    called: `of the rows are called ${yes}`,
  };
  const list = make("ul", { class: "figures" });
  const shown = Object.entries(figures).map(([name, text]) => {
    const number = make("strong");
    list.append(make("li", { "data-figure": name }, number, make("span", { text })));
    return [name, number];
  });
  const paint = () => {
    const at = Math.round(100 * state.threshold);
    const found = countsAt(own, at);
    value.textContent = percent(at / 100);
    slider.setAttribute("aria-valuetext", percent(at / 100));
    found.matrix.forEach((row, k) => row.forEach((n, j) => (cells[k][j].textContent = format(n))));
    for (const [name, number] of shown) number.textContent = percent(found[name]);
  };
  slider.addEventListener("input", () => state.setThreshold(Number(slider.value) / 100));
  state.onThreshold(paint);
  paint();
  return make(
    "div",
    { class: "decisions" },
    make("h3", { text: "Where to draw the line" }),
    make(
      "label",
      { class: "threshold" },
      make("span", { text: `A row is called ${yes} if its probability is above` }),
      value,
      slider,
    ),
    make("div", { class: "outcome" }, table, list),
  );
}

/* How much of the second class is found among the most probable rows. */
function gainFigure(data, own, state) {
  const yes = shorten(data.classes[1], 18);
  const chart = gainCurve(own.gain, ["share of the rows, most probable first", `share of all ${yes} found`]);
  const caption = make("figcaption", { id: "lift" });
  const top = own.gain[10];
  const paint = () => {
    const found = countsAt(own, Math.round(100 * state.threshold));
    chart.mark(found.called, found.recall ?? 0);
    caption.textContent =
      `The tenth of the rows with the highest probabilities holds ${percent(top)} of all ${yes}: a lift of ${format(10 * top, 3)} over a random choice, the dashed line.` +
      (found.lift === null
        ? ""
        : ` The mark is the threshold: its ${percent(found.called)} of the rows have a lift of ${format(found.lift, 3)}.`);
  };
  state.onThreshold(paint);
  paint();
  return make(
    "figure",
    { class: "wide" },
    make("h3", { text: `Finding ${yes} first: gain and lift` }),
    chart.root,
    caption,
  );
}
