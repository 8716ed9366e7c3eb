"use strict";
// All rollouts as a table: searched, filtered, sorted, and only the rows on the screen made.
const ROW = 43;
const SPARE_ROWS = 8;

// Kinds of rollouts that the reader may ask for; those that are none or all of them are not offered.
const OUTCOMES = [
  ["Right answer", (rollout) => rollout.correct === true],
  ["Wrong answer", (rollout) => rollout.correct === false],
  ["Not graded", (rollout) => rollout.correct === null],
  ["Peak on the first wrong step", (rollout) => rollout.wrong !== null && rollout.position === rollout.wrong],
  ["Peak elsewhere", (rollout) => rollout.wrong !== null && rollout.position !== rollout.wrong],
  ["Repaired by one token", (rollout) => rollout.effect && rollout.effect[1] > rollout.effect[0]],
  ["Not repaired by it", (rollout) => rollout.effect && rollout.effect[1] <= rollout.effect[0]],
  ["Not in this file", (rollout) => !rollout.held],
];

// Whether a rollout is of what a filter is set to.
const FILTERED = {
  population: (rollout, value) => rollout.population === Number(value),
  outcome: (rollout, value) => Boolean(OUTCOMES[value][1](rollout)),
  kind: (rollout, value) => rollout.kind === value,
};

// A value sorts, a cell shows; `starts` is the direction of the first click; a column without values is left out. An item is a
// rollout, or a token (tokens.js).
const ROLLOUT_COLUMNS = [
  { name: "Problem", kind: "problem", starts: 1, value: (rollout) => rollout.question || rollout.problem, cell: (rollout) => element("bdi", { class: "clamped" }, rollout.question || rollout.problem) },
  { name: "Answer", kind: "answer", starts: 1, value: (rollout) => rollout.answer, cell: (rollout) => (rollout.answer ? element(rollout.correct === false ? "s" : "bdi", { dir: "auto" }, rollout.answer) : "none") },
  { name: "Divergence", hint: "Sort by where in the rollout it is highest", kind: "spark", starts: 1, value: (rollout) => (rollout.position === null ? null : rollout.position / rollout.length), cell: (rollout) => sparkline(rollout.spark) },
  { name: "Peak", kind: "peak num", starts: -1, value: (rollout) => rollout.peak, cell: (rollout) => (rollout.peak === null ? "" : nats(asStored(rollout.peak))) },
  { name: "Repair", hint: "Right continuations with the token as it was → with that of the trained model", kind: "repair num", starts: -1, value: (rollout) => (rollout.effect ? (rollout.effect[1] - rollout.effect[0]) / rollout.effect[2] : null), cell: (rollout) => (rollout.effect ? `${rollout.effect[0]} → ${rollout.effect[1]}` : "") },
  { name: "Length", kind: "length num", starts: -1, value: (rollout) => rollout.sampled, cell: (rollout) => String(rollout.sampled) },
  { name: "Outcome", kind: "outcome", starts: 1, value: (rollout) => (rollout.correct === null ? null : Number(rollout.correct)), cell: (rollout) => (rollout.correct === null ? "not graded" : rollout.correct ? "right" : "wrong") },
];

// The divergence along a rollout in one path: a stroke for each of its bytes.
function sparkline(text) {
  const heights = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const width = 128 / Math.max(1, heights.length);
  let path = "";
  heights.forEach((height, k) => {
    if (height > 4) path += `M${((k + 0.5) * width).toFixed(1)} 24v${(-height / 11).toFixed(1)}`;
  });
  return svg("svg", { viewBox: "0 0 128 24", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { class: "ground", d: "M0 23.5h128" }), svg("path", { class: "strokes", d: path, "stroke-width": (0.7 * Math.max(2, width)).toFixed(1) }));
}

function withoutSpaces(text) {
  return text.replace(/\s+/g, "").toLowerCase();
}

// Rows of a CSV file: texts in quotes, what is not known empty.
function csvOf(rows) {
  const cell = (value) => (value === null || value === undefined || Number.isNaN(value) ? "" : typeof value === "string" ? `"${value.replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
}

// What the list shows of rollouts; `TokenItems` does the same of tokens.
class RolloutItems {
  constructor(page) {
    this.page = page;
    this.rollouts = page.index.rollouts;
    this.noun = "rollout";
    this.columns = ROLLOUT_COLUMNS.filter(({ value }) => this.rollouts.some((rollout) => value(rollout) !== null && value(rollout) !== ""));
    this.sorted = this.columns.find(({ name }) => name === "Repair") || this.columns.find(({ name }) => name === "Peak") || this.columns[0];
    this.first = this.sorted;
    this.direction = this.sorted.starts;
    this.texts = this.rollouts.map((rollout) => withoutSpaces([rollout.question, rollout.problem, rollout.answer, rollout.gold, rollout.final_answer, rollout.kind].map((text) => text ?? "").join("\n")));
  }

  get count() {
    return this.rollouts.length;
  }

  item(id) {
    return this.rollouts[id];
  }

  place(id) {
    return { number: id };
  }

  idOf(number) {
    return number;
  }

  // Whether a rollout has the words; those of its response once it is unpacked.
  has(id, words) {
    return this.texts[id].includes(words);
  }

  readText(number, { tokens, gaps }) {
    this.texts[number] += `\n${withoutSpaces(tokens.map((token, k) => gaps[k] + token).join(""))}`;
  }

  csv(ids) {
    const names = ["sequence_id", "problem_id", "kind", "source", "correct", "question", "answer", "gold", "tokens", "peak_position", "peak", "first_wrong", "right_as_it_was", "right_with_trained_token", "continuations"];
    const rows = ids.map((id) => {
      const { problem, kind, source, correct, question, answer, gold, length, position, peak, wrong, effect } = this.rollouts[id];
      return [id, problem, kind, source, correct, question, answer, gold, length, position, peak, wrong, ...(effect || [null, null, null])];
    });
    return csvOf([names, ...rows]);
  }
}

class RolloutList {
  constructor(page) {
    this.page = page;
    this.rollouts = page.index.rollouts;
    this.ofRollouts = new RolloutItems(page);
    this.ofTokens = null;
    this.items = this.ofRollouts;
    this.box = byId("list");
    this.rows = new Map();
    this.reading = null;
    this.buildTools();
    this.buildHeads();
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.box.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    // Printed is the top of the list, with its headings: what the reader has scrolled to would begin within a row.
    let place = 0;
    const scrollTo = (top) => {
      place = this.box.scrollTop;
      this.box.scrollTop = top;
      this.draw();
    };
    addEventListener("beforeprint", () => scrollTo(0));
    addEventListener("afterprint", () => scrollTo(place));
    this.filter();
  }

  buildTools() {
    const { populations } = this.page.index;
    this.choices = new Map();
    this.offer("population", populations.length > 1, [["", "All rollouts"], ...populations.map(({ title }, k) => [k, title])]);
    const isSome = (fits) => this.rollouts.some(fits) && !this.rollouts.every(fits);
    const outcomes = OUTCOMES.map(([name, fits], k) => [k, name, fits]).filter(([, , fits]) => isSome(fits));
    this.offer("outcome", outcomes.length > 0, [["", "Any outcome"], ...outcomes]);
    const names = [...new Set(this.rollouts.map(({ kind }) => kind))].filter(Boolean).sort(new Intl.Collator(undefined, { numeric: true }).compare);
    this.offer("kind", names.length > 1, [["", "Any kind"], ...names.map((name) => [name, name])]);
    this.offer("category", false, []);
    for (const id of this.choices.keys()) byId(id).addEventListener("input", () => this.filter());
    fill(byId("at"), this.page.index.checkpoints.map(({ label }, k) => element("option", { value: k }, label)));
    byId("at").addEventListener("input", () => this.page.setCheckpoint(Number(byId("at").value)));
    byId("what").addEventListener("input", () => this.choose(byId("what").value));
    byId("save-list").addEventListener("click", () => saveText(`${this.items.noun}s.csv`, this.items.csv(this.shown.map(({ id }) => id))));
    byId("find").addEventListener("input", () => this.search());
    byId("find").addEventListener("keydown", (event) => event.key === "Enter" && this.openItem(this.shown[0]?.id));
  }

  // What a filter may be set to, as [value, text].
  offer(id, isUseful, choices) {
    const options = choices.map(([value, text]) => ({ text, option: element("option", { value }, text) }));
    this.choices.set(id, options);
    fill(byId(id), options.map(({ option }) => option)).hidden = !isUseful;
  }


  // Rollouts or tokens: the tokens of all rollouts are unpacked when they are first asked for.
  async choose(what) {
    if (what === "tokens" && this.ofTokens === null) {
      byId("count").textContent = "Unpacking …";
      await this.readAll();
      this.ofTokens = new TokenItems(this.page, this.decoded);
      const { names } = this.ofTokens;
      this.offer("category", false, [["", "Any category"], ...names.map((name) => [name, name.replace(/_/g, " ")])]);
    }
    if (byId("what").value !== what) return;
    this.items = what === "tokens" ? this.ofTokens : this.ofRollouts;
    byId("category").hidden = what !== "tokens" || this.ofTokens.names.length < 2;
    byId("at").hidden = what !== "tokens" || this.page.index.checkpoints.length < 2;
    this.rows.clear();
    this.buildHeads();
    this.showCheckpoint();
    this.filter();
  }

  isOfTokens() {
    return this.items !== this.ofRollouts;
  }

  // Every rollout of the page, unpacked once: a promise.
  readAll() {
    this.reading ??= (async () => {
      this.decoded = new Array(this.rollouts.length).fill(null);
      await Promise.all(this.rollouts.map(async ({ held }, number) => {
        if (!held) return;
        try {
          const rollout = await readRollout(number);
          this.decoded[number] = rollout;
          this.ofRollouts.readText(number, rollout);
        } catch {
          // What cannot be unpacked has no tokens to list.
        }
      }));
    })();
    return this.reading;
  }

  // Search what is at hand at once, and the responses when they are unpacked.
  async search() {
    this.filter();
    if (byId("find").value.trim() === "" || this.decoded) return;
    await this.readAll();
    this.filter();
  }

  // Of tokens, the numbers are those of the chosen checkpoint.
  showCheckpoint() {
    byId("at").value = String(this.page.checkpoint);
    if (!this.isOfTokens()) return;
    this.rows.clear();
    this.filter(true);
  }

  buildHeads() {
    this.heads = this.items.columns.map((column) => {
      const button = element("button", { type: "button", title: column.hint }, column.name);
      button.addEventListener("click", () => this.sortBy(column));
      return element("th", { scope: "col", class: column.kind }, button);
    });
    fill(byId("heads"), this.heads);
    this.box.querySelector("table").setAttribute("aria-colcount", String(this.heads.length));
    this.box.querySelector("table").setAttribute("aria-label", this.isOfTokens() ? "Tokens" : "Rollouts");
  }

  sortBy(column) {
    const { items } = this;
    items.direction = column === items.sorted ? -items.direction : column.starts;
    items.sorted = column;
    this.filter();
  }

  // The items that fit search and filters. Beside each choice of a filter stands how many it would leave.
  found() {
    const { items } = this, words = withoutSpaces(byId("find").value), isOfTokens = this.isOfTokens();
    const category = isOfTokens ? byId("category").value : "";
    const set = Object.keys(FILTERED).map((id) => [id, byId(id).value]);

    // Of each rollout the one filter that keeps it out, for whose choices it still counts: "" is none, null several.
    const outside = this.rollouts.map((rollout) => {
      const names = set.filter(([id, value]) => value !== "" && !FILTERED[id](rollout, value)).map(([id]) => id);
      return names.length > 1 ? null : names[0] ?? "";
    });
    const found = [], ofRollouts = new Array(this.rollouts.length).fill(0), ofCategories = {};
    for (let id = 0; id < items.count; id += 1) {
      const { number } = items.place(id);
      if (outside[number] === null || (words && !items.has(id, words))) continue;
      const own = isOfTokens ? items.category(id) : "";
      if (outside[number] === "") ofCategories[own] = (ofCategories[own] ?? 0) + 1;
      if (category !== "" && own !== category) continue;
      ofRollouts[number] += 1;
      if (outside[number] === "") found.push(id);
    }

    // The first choice is all of them.
    const counted = (id, value) => this.rollouts.reduce((sum, rollout, number) => sum + (["", id].includes(outside[number]) && FILTERED[id](rollout, value) ? ofRollouts[number] : 0), 0);
    for (const [id, choices] of this.choices) {
      for (const { option, text } of choices.slice(1)) {
        const count = id === "category" ? ofCategories[option.value] ?? 0 : counted(id, option.value);
        option.textContent = `${text} (${count.toLocaleString("en")})`;
      }
    }
    return found;
  }

  // The items that fit search and filters, in order; those without a value are always last.
  filter(isSamePlace = false) {
    if (this.page.list) this.page.keepAddress();
    const { items } = this;
    const { value } = items.sorted;
    this.shown = this.found().map((id) => ({ id, key: value(items.item(id)) }));
    const language = new Intl.Collator(undefined, { numeric: true });
    this.shown.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.id - b.id;
      const order = typeof a.key === "string" ? language.compare(a.key, b.key) : a.key - b.key;
      return items.direction * order || a.id - b.id;
    });
    this.say();
    if (!isSamePlace) this.box.scrollTop = 0;
    this.draw();
  }

  say() {
    const { populations } = this.page.index, population = byId("population").value;
    byId("count").textContent = `${this.shown.length.toLocaleString("en")} of ${this.items.count.toLocaleString("en")}`;
    const chosen = populations.length === 1 ? populations[0] : populations[population];
    byId("population-note").textContent = population === "" && populations.length > 1 ? "" : chosen.note;
    this.heads.forEach((head, k) => {
      const isSorted = this.items.columns[k] === this.items.sorted;
      if (isSorted) head.setAttribute("aria-sort", this.items.direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  // The rows near the screen, between two empty ones that are as high as all others.
  draw() {
    const count = this.shown.length;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE_ROWS);
    const last = Math.min(count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE_ROWS);
    const space = (rows) => {
      const cell = element("td");
      cell.style.setProperty("height", `${rows * ROW}px`);
      return element("tr", { class: "space", "aria-hidden": "true" }, cell);
    };
    const rows = this.shown.slice(first, last).map(({ id }, k) => this.row(id, first + k));
    const nothing = count === 0 ? element("tr", { class: "nothing" }, element("td", { class: "soft" }, `No ${this.items.noun} fits.`)) : null;
    fill(byId("rows"), [space(first), ...rows, nothing, space(count - last)]);
    this.box.querySelector("table").setAttribute("aria-rowcount", String(count + 1));
  }

  // The row of an item, made once for as long as it is near the screen.
  row(id, place) {
    if (this.rows.size > 400) this.rows.clear();
    if (!this.rows.has(id)) {
      const item = this.items.item(id);
      const cells = this.items.columns.map(({ kind, cell }) => element("td", { class: kind }, cell(item)));
      const made = element("tr", { id: `row-${id}` }, ...cells);
      cells[0].title = item.question || item.problem;
      made.addEventListener("click", () => this.openItem(id));
      this.rows.set(id, made);
    }
    const row = this.rows.get(id);
    const isChosen = id === this.chosen();
    row.setAttribute("aria-rowindex", String(place + 2));
    row.setAttribute("aria-selected", String(isChosen));
    row.classList.toggle("on", isChosen);
    return row;
  }

  chosen() {
    return this.items.idOf(this.page.chosen, this.page.panel.token);
  }

  openItem(id) {
    if (id === undefined || id === null) return;
    const { number, token } = this.items.place(id);
    this.page.open(number, token);
  }

  // The chosen item in view, without moving the page.
  reveal() {
    const place = this.placeOf(this.chosen());
    const { scrollTop, clientHeight } = this.box;
    if (place >= 0 && (ROW * place < scrollTop || ROW * (place + 2) > scrollTop + clientHeight)) this.box.scrollTop = ROW * Math.max(0, Math.round(place - clientHeight / ROW / 3));
    this.draw();
    this.box.setAttribute("aria-activedescendant", `row-${this.chosen()}`);
  }

  placeOf(id) {
    return this.shown.findIndex((row) => row.id === id);
  }

  // The item `distance` rows further on, or the first where the open one is not listed.
  neighbour(distance) {
    const place = this.placeOf(this.chosen());
    return this.shown[place < 0 ? 0 : place + distance]?.id ?? null;
  }

  press(event) {
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey) return;
    const targets = { ArrowDown: () => this.neighbour(1), ArrowUp: () => this.neighbour(-1), Home: () => this.shown[0]?.id, End: () => this.shown.at(-1)?.id };
    if (event.key === "Enter") this.page.panel.tokens.focus();
    else if (Object.hasOwn(targets, event.key)) this.openItem(targets[event.key]());
    else return;
    event.preventDefault();
  }
}
