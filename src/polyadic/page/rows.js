/* The rows to start from: a list, a table, and which row the values came from. */

/* What a row is called: by its own label, or by its number. */
const rowLabel = (data, k) => (data.rows.labels ? data.rows.labels[k] : format(data.rows.numbers[k]));
const rowName = (data, k) => `${shorten(data.rows.heading, 24)} ${shorten(rowLabel(data, k), 40)}`;

function rowChoice(data, state) {
  const choice = make("select", { id: "row" });
  data.rows.numbers.forEach((_, k) =>
    choice.append(
      make("option", { value: k, text: `${rowName(data, k)}: ${state.predictedTexts[k]}` }),
    ),
  );
  choice.addEventListener("change", () => state.pick(Number(choice.value)));
  state.onRow(() => (choice.value = state.row));
  return make("label", { class: "start" }, make("span", { text: "Start from" }), choice);
}

/* Which row the values came from, and a button that restores it. */
function origin(data, state) {
  const text = make("span", { id: "origin" });
  const back = make("button", { type: "button", id: "back", text: "Back to this row" });
  back.addEventListener("click", () => state.pick(state.row));
  const root = make("div", { class: "origin" }, text, back);
  const showOrigin = () => {
    const changed = state.changed();
    const names = changed
      .slice(0, 3)
      .map((n) => shorten(data.columns[n].name, 24))
      .join(", ");
    const more = changed.length > 3 ? ` and ${changed.length - 3} more` : "";
    text.textContent = `${rowName(data, state.row)}, with another ${names}${more}`;
    root.hidden = changed.length === 0;
  };
  state.onMove(showOrigin);
  return root;
}

function rowTable(data, state) {
  const { numbers, target } = data.rows;
  const columns = data.order.slice(0, 40);
  const heads = [
    data.rows.heading,
    ...(target ? [`actual ${shorten(data.target, 24)}`] : []),
    "predicted",
    ...columns.map((n) => data.columns[n].name),
  ];
  const rows = numbers.map((_, k) => {
    const button = make("button", {
      type: "button",
      text: shorten(rowLabel(data, k), 40),
      "aria-label": `Put ${rowName(data, k)} into the what-if panel`,
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
      make("td", { class: "end strong", text: state.predictedTexts[k] }),
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
  const table = tableOf("Rows to start from", heads, rows);
  const show = () => {
    rows.forEach((row, k) => {
      row.classList.toggle("picked", k === state.row);
      row.querySelector("button").setAttribute("aria-pressed", k === state.row);
    });
  };
  state.onRow(show);
  show();
  const note = make("p", {
    class: "note",
    text: `${numbers.length} of the rows passed, evenly spaced from the lowest to the highest ${data.outputs.length > 1 ? `score of ${data.outputs[0]}` : "prediction"}. Pick one to put it into the panel.`,
  });
  // To the picked row, which is in the middle at the start, once the table has a size.
  requestAnimationFrame(
    () => (table.scrollTop = rows[state.row].offsetTop - table.clientHeight / 2),
  );
  return [note, table];
}
