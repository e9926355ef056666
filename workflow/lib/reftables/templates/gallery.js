// What moves in a page of the gallery: sorting, searching, and one group of samples at a time.
"use strict";

document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);

const orders = { worst: [2, "asc"], best: [2, "desc"], unparsed: [0, "asc"], disagree: [3, "desc"], "": [0, "asc"] };
const group = document.getElementById("group");
const table = new DataTable("#samples", {
  autoWidth: false,
  order: [orders[""]],
  pageLength: 20,
  layout: { topStart: null, topEnd: null, bottomStart: "info", bottomEnd: "paging" },
  columnDefs: [{ targets: [1, 4], orderable: false }],
});

table.search.fixed("group", (_text, _row, index) =>
  group.value === "" || table.row(index).node().dataset.groups.split(" ").includes(group.value),
);
group.addEventListener("change", () => table.order(orders[group.value]).draw());
document.getElementById("search").addEventListener("input", (event) => table.search(event.target.value).draw());
document.getElementById("controls").hidden = false;
