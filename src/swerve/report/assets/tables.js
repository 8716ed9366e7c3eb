"use strict";
// Tables whose headings sort their rows; how each is sorted is a part of the address.

// By name of the table: sorts it by a column, and by which one a reader has sorted it, below 0 from the highest.
const sorters = new Map(), sortedBy = new Map();

// The number that a cell begins with, as tables are sorted; null where it is a text.
function leadingNumber(text) {
  const found = /^[+\u2212-]?[\d,]*\.?\d+(e[+-]?\d+)?/.exec(text.trim());
  return found ? Number(found[0].replace("\u2212", "-").replaceAll(",", "")) : null;
}

// The places of some cells in order, each a number or a text; what was not measured comes last.
function orderOf(cells, isRising) {
  const direction = isRising ? 1 : -1, language = new Intl.Collator(undefined, { numeric: true });
  const isNone = (cell) => cell === null || cell === "" || cell === "–";
  return cells.map((_, place) => place).sort((one, other) => {
    const [a, b] = [cells[one], cells[other]];
    if (isNone(a) || isNone(b)) return isNone(a) - isNone(b) || one - other;
    if (typeof a === "number" && typeof b === "number") return direction * (a - b) || one - other;
    if (typeof a === "number" || typeof b === "number") return typeof a === "number" ? -1 : 1;
    return direction * language.compare(a, b) || one - other;
  });
}

// Sort the rows of a table by a column (`data-value` of a cell, if it has one).
function sortTable(table, index, isRising) {
  const rows = [...table.tBodies[0].rows];
  const cells = rows.map((row) => {
    const text = row.cells[index].dataset.value ?? row.cells[index].textContent;
    return leadingNumber(text) ?? text.trim();
  });
  table.tBodies[0].append(...orderOf(cells, isRising).map((place) => rows[place]));
}

// Make the headings of a table buttons that sort it; `sort` puts the rows into the order of a column.
function makeSortable(table, name, sort = (index, isRising) => sortTable(table, index, isRising)) {
  const headings = [...table.tHead.rows[0].cells];
  const choose = (index, isRising) => {
    if (!headings[index]) return;
    for (const heading of headings) heading.removeAttribute("aria-sort");
    headings[index].setAttribute("aria-sort", isRising ? "ascending" : "descending");
    sort(index, isRising);
    sortedBy.set(name, (isRising ? 1 : -1) * (index + 1));
  };
  headings.forEach((heading, index) => {
    const button = element("button", { type: "button" }, ...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      choose(index, heading.getAttribute("aria-sort") === "descending");
      document.dispatchEvent(new Event("seen-anew"));
    });
  });
  sorters.set(name, choose);
}

function startTables() {
  for (const table of document.querySelectorAll("table:has(tbody tr + tr)")) {
    makeSortable(table, table.closest("[data-id]")?.dataset.id);
  }
}
