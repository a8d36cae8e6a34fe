/* Sections and parts of them that fold. */

/* A section whose heading folds it. */
function section({ id, title, lead, open = true }, ...children) {
  return make(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    make(
      "details",
      { open },
      make("summary", {}, make("h2", { id: `${id}-title`, text: title })),
      make(
        "div",
        { class: "inside" },
        lead ? make("p", { class: "lead", text: lead }) : null,
        ...children,
      ),
    ),
  );
}

/* A part that is closed at first; `fillIn` is called when it is opened for the first time. */
function more(text, attributes, fillIn) {
  const inside = make("div", { class: "inside" });
  const root = make("details", { class: "more", ...attributes }, make("summary", { text }), inside);
  let done = false;
  const complete = () => {
    if (done) return;
    done = true;
    fillIn(inside);
  };
  root.addEventListener("toggle", () => root.open && complete());
  root.complete = complete; // for what must not wait for the event
  return root;
}

/* Open the section that a link points to, and everything before the page is printed. */
function openOnDemand() {
  const open = (id) => {
    const own = id && document.getElementById(id);
    if (own && own.firstElementChild?.tagName === "DETAILS") own.firstElementChild.open = true;
  };
  document.querySelectorAll("nav a").forEach((link) =>
    link.addEventListener("click", () => open(link.hash.slice(1))),
  );
  open(location.hash.slice(1));
  window.addEventListener("beforeprint", () =>
    document.querySelectorAll("details").forEach((own) => (own.open = true)),
  );
}

/* Split a list into what is shown at once and what is folded; a few more are not worth a fold. */
const divide = (all, shown, few = 3) =>
  all.length > shown + few ? [all.slice(0, shown), all.slice(shown)] : [all, []];

function tableOf(caption, heads, rows) {
  const head = make(
    "tr",
    {},
    ...heads.map((text, k) =>
      make("th", {
        scope: "col",
        text,
        title: text,
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
