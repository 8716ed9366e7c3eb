"use strict";
// The pages of `swerve view` that change: each is drawn from `pageData.state` and again from its address beside it.
const SECONDS_BETWEEN_LOOKS = 4;

// What an address says now; null where nobody answers.
async function currentState(address) {
  try {
    const answer = await fetch(address);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

// Draw a state, and while somebody looks at the page each that follows it.
async function keepDrawing(address, draw) {
  let state = pageData.state, drawn = "";
  for (;;) {
    const text = JSON.stringify(state);
    if (text !== drawn) draw(state);
    drawn = text;
    const wait = state.num_unread ? 0.1 : SECONDS_BETWEEN_LOOKS;
    await new Promise((resolve) => { setTimeout(resolve, 1000 * wait); });
    const next = document.hidden ? state : await currentState(address);
    byId("away").hidden = next !== null;
    state = next ?? state;
  }
}

// The title and the sentence below it.
function drawHead(state) {
  byId("title").textContent = state.title;
  byId("lead").textContent = state.lead;
}

// A line of the list: its name opens its page, and below the name stands what is wrong with it.
function itemRow(entry) {
  const [[name], ...cells] = entry.cells;
  const link = entry.page === null ? name : element("a", { href: entry.page, "data-key": entry.key }, name);
  const error = entry.error && element("small", { title: entry.error }, entry.error);
  const row = element("tr", { class: entry.is_live ? "live" : null }, element("th", { scope: "row", "data-value": name }, link, error));
  for (const [text, value] of cells) row.append(element("td", { "data-value": value, class: text === "-" ? "none" : null }, text));
  return row;
}

// Show only the lines whose name has what is searched for.
function searchItems() {
  const wanted = byId("find").value.trim().toLowerCase();
  for (const row of byId("items").rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
}

// Sort the list again as its reader had it.
function sortAgain(table) {
  const headings = [...table.tHead.rows[0].cells];
  const index = headings.findIndex((heading) => heading.hasAttribute("aria-sort"));
  if (index >= 0) sortTable(table, index, headings[index].getAttribute("aria-sort") === "ascending");
}

// Draw the list; lines that say the same as before stay the same elements.
function listDrawing() {
  const rows = new Map(), body = byId("items");
  byId("find").addEventListener("input", searchItems);
  return (state) => {
    const focused = document.activeElement.dataset.key;
    body.replaceChildren(...state.entries.map((entry) => {
      const text = JSON.stringify(entry);
      if (rows.get(entry.key)?.text !== text) rows.set(entry.key, { text, row: itemRow(entry) });
      return rows.get(entry.key).row;
    }));
    drawHead(state);
    sortAgain(body.parentElement);
    searchItems();
    if (focused) body.querySelector(`[data-key="${focused}"]`)?.focus();
  };
}

// A plot of curves, which the server has drawn.
function chart({ title, unit, plots }) {
  const figure = element("figure", {}, element("h3", {}, title, " ", element("small", {}, unit)));
  for (const plot of plots) figure.append(...new DOMParser().parseFromString(plot, "text/html").body.children);
  return figure;
}

// What a model wrote for a problem, with the verdict on it.
function sample({ problem, outcome, reward, text }) {
  const verdict = reward === null ? outcome : `${outcome}, reward ${reward.toFixed(3)}`;
  const head = element("p", {}, element("b", {}, problem), ` ${verdict}`);
  return element("article", { class: outcome === "wrong" ? "wrong" : null }, head, element("pre", { tabindex: 0 }, text));
}

// Draw a run while it trains.
function drawLive(state) {
  drawHead(state);
  fill(byId("charts"), state.charts.map(chart));
  const samples = state.samples;
  fill(byId("samples"), samples === null ? [] : [
    element("h2", {}, samples.title),
    element("p", { class: "note" }, samples.note),
    element("div", { class: "samples" }, ...samples.rows.map(sample)),
  ]);
}

if (pageData.kind === "list") keepDrawing("list.json", listDrawing());
if (pageData.kind === "live") keepDrawing("live.json", drawLive);
