"use strict";
document.body.classList.add("live-page");

// Tables are sorted by the values of a column; a second time the other way round.
function sortBy(table, column, heading) {
  const number = heading.classList.contains("number");
  const down = heading.getAttribute("aria-sort") === (number ? "none" : "ascending");
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const rows = Array.from(table.tBodies[0].rows).sort(
    (a, b) => order(valueOf(a, column, number), valueOf(b, column, number)) * (down ? -1 : 1));
  table.tBodies[0].append(...rows);
  for (const other of heading.parentNode.cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

function valueOf(row, column, number) {
  const raw = row.cells[column].dataset.value;
  return number ? Number(raw) : raw;
}

// Rows stay that have all words of a filter: "conv* cycles>1000". A * is any text; a column is
// known by the beginning of its title without blanks.
const COMPARED = /^([^<>=]+)(<=|>=|<|>|=)(-?[\d.,]+)$/;
const TESTS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b };

function condition(word, headings) {
  const [, name, sign, limit] = COMPARED.exec(word) ?? [];
  const column = name ? headings.findIndex((one) => one.startsWith(name)) : -1;
  if (column >= 0) return (row) => TESTS[sign](valueOf(row, column, true), Number(limit.replaceAll(",", "")));
  const text = new RegExp(word.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join("\\S*"));
  return (row) => text.test(row.textContent.toLowerCase());
}

function filterBy(table, wanted, left) {
  const headings = Array.from(table.tHead.rows[0].cells, (one) => one.textContent.toLowerCase().replace(/\s/g, ""));
  const conditions = wanted.toLowerCase().split(/\s+/).filter(Boolean).map((word) => condition(word, headings));
  const rows = Array.from(table.tBodies[0].rows);
  for (const row of rows) row.hidden = !conditions.every((one) => one(row));
  const shown = rows.filter((row) => !row.hidden).length;
  left.textContent = conditions.length ? `${shown} of ${rows.length} rows` : "";
}

function addFilter(table) {
  const label = document.createElement("label");
  const field = document.createElement("input");
  const left = document.createElement("output");
  field.type = "search";
  field.placeholder = "text, or a column: cycles>1000";
  field.setAttribute("aria-label", `Filter: ${table.caption.textContent}`);
  field.addEventListener("input", () => filterBy(table, field.value, left));
  label.className = "filter";
  label.append("Filter ", field, " ", left);
  table.parentNode.before(label);
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    heading.addEventListener("click", () => sortBy(table, column, heading));
  });
  if (table.tBodies[0].rows.length > 8) addFilter(table);
}

// Figures and what draws them are packed; they are unpacked when somebody is about to see them.
async function unpacked(script) {
  const bytes = Uint8Array.from(atob(script.textContent), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

let vega = null;
function loadVega() {
  vega ??= unpacked(document.getElementById("vega")).then((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
  });
  return vega;
}

// Pictures come to life when they are about to be seen; on paper they stay as they are.
async function enliven(figure) {
  const live = figure.querySelector(".live");
  try {
    await loadVega();
    const spec = JSON.parse(await unpacked(figure.querySelector("script")));
    const narrow = figure.clientWidth < 600;
    if (narrow) spec.config.legend = { orient: "bottom", columns: 3 };
    if (spec.vconcat) {  // which cannot fit themselves; 340 as figures.py has it, 240 below a legend
      for (const part of spec.vconcat) part.width = Math.max(100, figure.clientWidth - (narrow ? 240 : 340));
    } else {
      spec.width = "container";
      spec.autosize = { type: "fit-x", contains: "padding" };
    }
    live.hidden = false;
    figure.classList.add("drawn");
    const actions = { export: true, source: false, compiled: false, editor: false };
    await vegaEmbed(live, spec, { mode: "vega-lite", renderer: live.dataset.renderer, actions });
  } catch (error) {
    console.error(error);
    live.hidden = true;
    figure.classList.remove("drawn");
  }
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    enliven(entry.target);
  }
}, { rootMargin: "600px" });
for (const figure of document.querySelectorAll("figure:has(.live)")) watcher.observe(figure);

// A link into a folded part opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.hidden = false;  // a row that a filter hides
  target.scrollIntoView();
}
window.addEventListener("hashchange", openTarget);
if (location.hash) openTarget();
