"use strict";
// The rows that a sentence was made of: their table is made when it is opened, and is saved as a file.
const ROWS_AT_ONCE = 200;

// A cell of a file, in quotation marks where it needs them.
function csvCell(value) {
  const text = value === null ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function rowsAsCsv({ names, columns }) {
  const lines = [names, ...columns[0].map((_, at) => columns.map((column) => column[at]))];
  return `${lines.map((line) => line.map(csvCell).join(",")).join("\n")}\n`;
}

// A cell as a table shows it: a rollout, or a token of one, is a link to it where the page lists it.
function rowCell(name, value, at, rows) {
  const known = pageData.rollouts ? pageData.rollouts.rollouts : [];
  const numbers = rows.columns[rows.names.indexOf("rollout")], number = numbers && numbers[at];
  if (value === null || value === "") return element("td", { class: "none" }, "–");
  if (!["rollout", "token"].includes(name) || !known[number]) return element("td", {}, String(value));
  const address = name === "token" ? `#r=${number}&t=${value}` : `#r=${number}`;
  return element("td", {}, element("a", { class: "link", href: address }, String(value)));
}

// What was written to a problem: the question, the gold answer, and of each model an answer of each kind.
function writtenTo({ question, gold, counts, answers }) {
  const line = (name, text) => element("p", {}, element("b", {}, name), text);
  const texts = answers.map(({ model, outcome, text }) => element("div", {}, line(`${model}, ${outcome}`), element("pre", {}, text)));
  return element("div", { class: "written" }, question && line("Question ", question), gold && line("Gold answer ", gold), line("", `${counts.join("; ")}.`), ...texts);
}

// Rows that a row opens: with what they are, and how many of them there are.
function furtherRows(rows) {
  const note = [rows.note, rowsHeld(rows)].filter(Boolean).join(" ");
  return element("div", {}, note && element("p", { class: "note" }, note), rowsAsTable(rows));
}

// By name of a table of rows: the places of those that a reader opened, and what opens one.
const openedRows = new Map(), rowOpeners = new Map();

// What the page holds of a row; undefined where it opens nothing.
function heldOf({ columns, opens }, at) {
  return opens && pageData.held[`${opens}${columns[0][at]}`];
}

// The row below one that was opened.
function openedRow(held, span) {
  return element("tr", { class: "opened" }, element("td", { colspan: span }, held.names ? furtherRows(held) : writtenTo(held)));
}

// Open what the page holds of a row, or close it. The table is as high as it needs to be while something is open, and the row
// stays where the reader sees it.
function toggleRow(button, held, at, opened) {
  const row = button.closest("tr"), before = row.getBoundingClientRect().top, isOpen = opened.delete(at);
  button.setAttribute("aria-expanded", String(!isOpen));
  if (isOpen) row.nextElementSibling.remove();
  else {
    opened.add(at);
    row.after(openedRow(held, row.cells.length));
  }
  window.scrollBy(0, row.getBoundingClientRect().top - before);
  if (isOpen) row.scrollIntoView({ block: "nearest" });
}

// The first cell of a row that opens what the page holds of it.
function openingCell(value, held, at, opened) {
  const button = element("button", { type: "button", class: "opens", "aria-expanded": String(opened.has(at)) }, String(value));
  button.addEventListener("click", () => {
    toggleRow(button, held, at, opened);
    document.dispatchEvent(new Event("seen-anew"));
  });
  return element("td", {}, button);
}

// The rows of a table, in an order of their places, with what is opened of them; of many the first.
function rowsInOrder(rows, order, opened = new Set()) {
  const { names, columns } = rows;
  return order.slice(0, ROWS_AT_ONCE).flatMap((at) => {
    const held = heldOf(rows, at);
    const cells = names.map((name, index) => (held && index === 0 ? openingCell(columns[0][at], held, at, opened) : rowCell(name, columns[index][at], at, rows)));
    const row = element("tr", { "data-at": at }, ...cells);
    return held && opened.has(at) ? [row, openedRow(held, names.length)] : [row];
  });
}

// The places of rows as a table first has them: those that open something before the others.
function placesOf(rows) {
  const places = [...rows.columns[0].keys()];
  return [...places.filter((at) => heldOf(rows, at)), ...places.filter((at) => !heldOf(rows, at))];
}

function rowsAsTable(rows, opened) {
  const head = element("tr", {}, ...rows.names.map((column) => element("th", { scope: "col" }, column)));
  const body = element("tbody", {}, ...rowsInOrder(rows, placesOf(rows), opened));
  return element("table", {}, element("thead", {}, head), body);
}

// Which of the rows the table has, and which the file.
function rowsHeld({ num, columns }) {
  const inside = columns[0].length, shown = Math.min(inside, ROWS_AT_ONCE);
  if (shown === num) return "";
  const file = inside < num ? `the CSV has the first ${inside.toLocaleString("en")}, which the headings sort; the lines below make all` : "the CSV has all, and the headings sort all";
  return `Here are ${shown.toLocaleString("en")} of ${num.toLocaleString("en")} rows; ${file}.`;
}

// Make the table behind a sentence, once.
function makeRows(fold, rows, name) {
  const place = fold.querySelector(".table-of-rows"), opened = openedRows.get(name);
  if (place.childElementCount) return;
  const table = rowsAsTable(rows, opened), body = table.tBodies[0];
  place.append(table);
  fold.querySelector(".held-rows").textContent = rowsHeld(rows);
  makeSortable(table, name, (index, isRising) => fill(body, rowsInOrder(rows, orderOf(rows.columns[index], isRising), opened)));
}

function startEvidence(known) {
  for (const fold of document.querySelectorAll("details.evidence")) {
    const rows = known[fold.dataset.rows], name = foldName(fold);
    openedRows.set(name, new Set());
    const make = () => fold.open && makeRows(fold, rows, name);
    fold.addEventListener("toggle", make);
    make(); // a fold may have been opened before the page had its data
    // A table that is sorted, or of which a row is opened, before it is opened is made first.
    sorters.set(name, (...order) => {
      makeRows(fold, rows, name);
      sorters.get(name)(...order);
    });
    rowOpeners.set(name, (at) => {
      makeRows(fold, rows, name);
      fold.querySelector(`.table-of-rows > table > tbody > tr[data-at="${at}"] > td > .opens[aria-expanded=false]`)?.click();
    });
    const save = element("button", { type: "button", class: "link", "aria-label": "Save these rows as CSV" }, "CSV");
    save.addEventListener("click", () => saveText(`${fold.dataset.rows}.csv`, rowsAsCsv(rows)));
    fold.after(save);
  }
}
