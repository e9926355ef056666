// What moves in the page: sorting and searching (DataTables), hiding models, the plots (Observable Plot).
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const colours = { ours: "var(--link)", published: "var(--bad)" };

document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);

const tables = [...document.querySelectorAll("table.sortable")].map((element) => {
  const isPaged = element.classList.contains("paged");
  const table = new DataTable(element, {
    autoWidth: false,
    order: [],
    paging: isPaged,
    pageLength: 25,
    info: isPaged,
    layout: { topStart: null, topEnd: null, bottomStart: isPaged ? "info" : null, bottomEnd: isPaged ? "paging" : null },
  });
  table.table().container().querySelector("nav")?.setAttribute("aria-label", `Pages of ${element.id}`);
  table.search.fixed("models", (_text, _row, index) => isShown(modelsOf(table.row(index).node())));
  return table;
});

function modelsOf(element) {
  return JSON.parse(element.dataset.models);
}

function isShown(models) {
  return models.every((model) => !hidden.has(model));
}

function refresh() {
  for (const table of tables) table.draw();
  for (const element of document.querySelectorAll("details[data-models]")) element.hidden = !isShown(modelsOf(element));
  drawFigures();
  drawBreakdowns();
  drawComparisons();
}

// One row a model: a dot on its interval, and the published number where there is one.
function dotPlot(rows, { name, low = "low", high = "high", domain = undefined, zero = false }) {
  const names = [...new Set(rows.map((row) => row[name]))];
  const longest = Math.max(...names.map((text) => text.length));
  const published = rows.filter((row) => row.published !== undefined && row.published !== null);
  const plot = Plot.plot({
    width: Math.max(280, Math.min(560, document.querySelector("main").clientWidth - 30)),
    marginLeft: Math.min(190, 14 + 6.2 * longest),
    marginRight: 14,
    height: 44 + 20 * names.length,
    style: { fontSize: "11px", background: "none" },
    x: { domain, nice: true, grid: true, label: null, ticks: 5 },
    y: { domain: names, label: null, tickFormat: (text) => (text.length > 29 ? `${text.slice(0, 28)}…` : text) },
    marks: [
      zero ? Plot.ruleX([0], { stroke: "var(--muted)" }) : null,
      Plot.ruleY(rows.filter((row) => row[low] !== null), { y: name, x1: low, x2: high, stroke: colours.ours, strokeWidth: 2 }),
      Plot.dot(rows.filter((row) => row.value !== null), {
        y: name, x: "value", r: 4, fill: colours.ours, title: (row) => describe(row, name),
      }),
      Plot.dot(published, {
        y: name, x: "published", r: 5, symbol: "diamond", stroke: colours.published, strokeWidth: 2,
        title: (row) => `${row[name]}: published ${row.published}`,
      }),
    ],
  });
  for (const element of plot.querySelectorAll("[aria-label]")) element.removeAttribute("aria-label");
  plot.setAttribute("role", "img"); // as a whole: the tables have its numbers
  return plot;
}

function describe(row, name) {
  const interval = row.low === null ? "" : ` (${row.low.toFixed(2)} to ${row.high.toFixed(2)})`;
  return `${row[name]}: ${row.value.toFixed(2)}${interval}${row.n ? `, n=${row.n}` : ""}`;
}

function figure(caption, plot) {
  const element = document.createElement("figure");
  const title = document.createElement("figcaption");
  title.textContent = caption;
  plot.setAttribute("aria-label", caption);
  element.append(title, plot);
  return element;
}

function drawFigures() {
  const plots = data.figures
    .map(({ title, rows }) => ({ title, rows: rows.filter((row) => isShown([row.model])) }))
    .filter(({ rows }) => rows.length)
    .map(({ title, rows }) => figure(title, dotPlot(rows, { name: "model", domain: [0, 100] })));
  document.getElementById("figures")?.replaceChildren(...plots);
}

function drawBreakdowns() {
  const select = document.getElementById("breakdown-split");
  if (!select) return;
  const shown = data.breakdowns.filter((row) => row.split === select.value && isShown([row.model]));
  const plots = [...d3.group(shown, (row) => row.breakdown, (row) => row.group)].flatMap(([breakdown, groups]) =>
    [...groups].map(([group, rows]) =>
      figure(`${breakdown}: ${group} (n=${rows[0].n})`, dotPlot(rows, { name: "model", domain: [0, 100] })),
    ),
  );
  document.getElementById("breakdown-figures").replaceChildren(...plots);
}

function drawComparisons() {
  const shown = data.comparisons.filter((row) => isShown(row.models));
  const plots = [...d3.group(shown, (row) => row.pair)].map(([pair, rows]) =>
    figure(`${pair}, points`, dotPlot(rows, { name: "split", zero: true })),
  );
  document.getElementById("comparison-figures")?.replaceChildren(...plots);
}

function offerModels() {
  const fieldset = document.getElementById("models");
  for (const model of data.models) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(model);
      else hidden.add(model);
      refresh();
    });
    label.append(box, model);
    fieldset.append(label);
  }
}

function offerSplits() {
  const select = document.getElementById("breakdown-split");
  if (!select) return;
  for (const split of new Set(data.breakdowns.map((row) => row.split))) select.add(new Option(split));
  select.addEventListener("change", drawBreakdowns);
}

offerModels();
offerSplits();
document.getElementById("search").addEventListener("input", (event) => {
  for (const table of tables) table.search(event.target.value).draw();
});
document.getElementById("controls").hidden = false;
refresh();
