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
function itemRow({ key, page, is_live, error, cells: [name, ...cells], numbers }) {
  const link = page === null ? name : element("a", { href: page, "data-key": key }, name);
  const wrong = error && element("small", { title: error }, error);
  const row = element("tr", { class: is_live && "live" }, element("th", { scope: "row", "data-value": name }, link, wrong));
  cells.forEach((text, index) => {
    row.append(element("td", { "data-value": numbers[index + 1], class: text === "-" && "none" }, text));
  });
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

// A plot that the server has drawn.
function plot(text) {
  return element("div", {}, new DOMParser().parseFromString(text, "text/html").body.firstElementChild);
}

// What a model wrote for a problem, with the verdict on it.
function sample([problem, isRight, reward, text]) {
  const verdict = isRight === null ? "not graded" : isRight ? "right" : "wrong";
  const said = reward === null ? verdict : `${verdict}, reward ${reward.toFixed(3)}`;
  const head = element("p", {}, element("b", {}, problem), ` ${said}`);
  return element("article", { class: verdict }, head, element("pre", { tabindex: 0 }, text));
}

// Draw a run while it trains.
function drawLive(state) {
  drawHead(state);
  byId("error").textContent = state.error;
  byId("note").textContent = state.note;
  fill(byId("plots"), state.plots.map(plot));
  byId("sampled").textContent = state.samples?.title;
  fill(byId("samples"), state.samples === null ? [] : state.samples.rows.map(sample));
}

if (pageData.kind === "list") keepDrawing("list.json", listDrawing());
if (pageData.kind === "live") keepDrawing("live.json", drawLive);
startTables();
