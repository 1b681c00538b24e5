"use strict";
document.body.classList.add("live-page");

// Tables are sorted by the values of a column; a second time the other way round.
function sortBy(table, column, heading) {
  const down = heading.getAttribute("aria-sort") === (heading.classList.contains("number") ? "none" : "ascending");
  const number = heading.classList.contains("number");
  const value = (row) => {
    const raw = row.cells[column].dataset.value;
    return number ? Number(raw) : raw;
  };
  const body = table.tBodies[0];
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const rows = Array.from(body.rows).sort((a, b) => order(value(a), value(b)) * (down ? -1 : 1));
  body.append(...rows);
  for (const other of heading.parentNode.cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    heading.tabIndex = 0;
    heading.setAttribute("aria-sort", "none");
    heading.addEventListener("click", () => sortBy(table, column, heading));
    heading.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sortBy(table, column, heading);
    });
  });
}

// Pictures come to life when they are about to be seen; on paper they stay as they are.
function enliven(figure) {
  const live = figure.querySelector(".live");
  const spec = JSON.parse(figure.querySelector("script").textContent);
  spec.width = "container";
  spec.autosize = { type: "fit-x", contains: "padding" };
  if (figure.clientWidth < 600) spec.config.legend = { orient: "bottom", columns: 3 };
  live.hidden = false;
  figure.classList.add("drawn");
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(live, spec, { mode: "vega-lite", renderer: live.dataset.renderer, actions }).catch((error) => {
    console.error(error);
    live.hidden = true;
    figure.classList.remove("drawn");
  });
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    enliven(entry.target);
  }
}, { rootMargin: "600px" });
for (const figure of document.querySelectorAll("figure:has(.live)")) watcher.observe(figure);

// On paper nobody can open what is folded.
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
