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

function rowsAsTable(rows) {
  const { names, columns } = rows;
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const body = columns[0].slice(0, ROWS_AT_ONCE).map((_, at) => element("tr", {}, ...names.map((name, index) => rowCell(name, columns[index][at], at, rows))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

// Which of the rows the table has, and which the file.
function rowsHeld({ num, columns }) {
  const inside = columns[0].length, shown = Math.min(inside, ROWS_AT_ONCE);
  if (shown === num) return "";
  const file = inside < num ? `the CSV has the first ${inside.toLocaleString("en")}; the lines below make all` : "the CSV has all";
  return `Here are the first ${shown.toLocaleString("en")} of ${num.toLocaleString("en")} rows; ${file}.`;
}

function startEvidence(known) {
  for (const fold of document.querySelectorAll("details.evidence")) {
    const rows = known[fold.dataset.rows];
    fold.addEventListener("toggle", () => {
      const place = fold.querySelector(".table-of-rows");
      if (!fold.open || place.childElementCount) return;
      place.append(rowsAsTable(rows));
      fold.querySelector(".held-rows").textContent = rowsHeld(rows);
    });
    const save = element("button", { type: "button", class: "link", "aria-label": "Save these rows as CSV" }, "CSV");
    save.addEventListener("click", () => saveText(`${fold.dataset.rows}.csv`, rowsAsCsv(rows)));
    fold.after(save);
  }
}

startEvidence(pageData.evidence || {});
