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

// A value sorts, a cell shows; `starts` is the direction of the first click; a column without values is left out.
const COLUMNS = [
  { name: "Problem", kind: "problem", starts: 1, value: (rollout) => rollout.question || rollout.problem, cell: (rollout) => element("bdi", { class: "clamped" }, rollout.question || rollout.problem) },
  { name: "Answer", kind: "answer", starts: 1, value: (rollout) => rollout.answer, cell: (rollout) => (rollout.answer ? element(rollout.correct === false ? "s" : "bdi", { dir: "auto" }, rollout.answer) : "none") },
  { name: "Divergence", hint: "Sort by where in the rollout it is highest", kind: "spark", starts: 1, value: (rollout) => (rollout.position === null ? null : rollout.position / rollout.length), cell: (rollout) => sparkline(rollout.spark) },
  { name: "Peak", kind: "peak num", starts: -1, value: (rollout) => rollout.peak, cell: (rollout) => (rollout.peak === null ? "" : nats(rollout.peak)) },
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

class RolloutList {
  constructor(page) {
    this.page = page;
    this.rollouts = page.index.rollouts;
    this.columns = COLUMNS.filter(({ value }) => this.rollouts.some((rollout) => value(rollout) !== null && value(rollout) !== ""));
    this.sorted = this.columns.find(({ name }) => name === "Repair") || this.columns.find(({ name }) => name === "Peak") || this.columns[0];
    this.direction = this.sorted.starts;
    this.box = byId("list");
    this.rows = new Map();
    this.texts = this.rollouts.map((rollout) => withoutSpaces([rollout.question, rollout.problem, rollout.answer, rollout.gold, rollout.final_answer, rollout.kind].map((text) => text ?? "").join("\n")));
    this.buildTools();
    this.buildHeads();
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.box.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.filter();
  }

  buildTools() {
    const { populations } = this.page.index;
    const option = (value, text, count) => element("option", { value }, `${text} (${count})`);
    this.offer("population", populations.length > 1, [option("", "All rollouts", this.rollouts.length), ...populations.map(({ title }, k) => option(k, title, this.rollouts.filter((rollout) => rollout.population === k).length))]);
    const kinds = OUTCOMES.map(([name, fits], k) => [k, name, this.rollouts.filter(fits).length]).filter(([, , count]) => count > 0 && count < this.rollouts.length);
    this.offer("outcome", kinds.length > 0, [element("option", { value: "" }, "Any outcome"), ...kinds.map((kind) => option(...kind))]);
    byId("find").addEventListener("input", () => this.filter());
    byId("find").addEventListener("keydown", (event) => event.key === "Enter" && this.page.open(this.shown[0]?.number));
  }

  offer(id, isUseful, options) {
    const select = fill(byId(id), options);
    select.hidden = !isUseful;
    select.addEventListener("input", () => this.filter());
  }

  buildHeads() {
    this.heads = this.columns.map((column) => {
      const button = element("button", { type: "button", title: column.hint }, column.name);
      button.addEventListener("click", () => this.sortBy(column));
      return element("th", { scope: "col", class: column.kind }, button);
    });
    fill(byId("heads"), this.heads);
    this.box.querySelector("table").setAttribute("aria-colcount", String(this.heads.length));
  }

  sortBy(column) {
    this.direction = column === this.sorted ? -this.direction : column.starts;
    this.sorted = column;
    this.filter();
  }

  // The rollouts that fit search and filters, in order; those without a value are always last.
  filter() {
    const words = withoutSpaces(byId("find").value);
    const [population, outcome] = [byId("population").value, byId("outcome").value];
    const { value } = this.sorted;
    this.shown = this.rollouts.flatMap((rollout, number) => {
      if (population !== "" && rollout.population !== Number(population)) return [];
      if (outcome !== "" && !OUTCOMES[outcome][1](rollout)) return [];
      return this.texts[number].includes(words) ? [{ number, key: value(rollout) }] : [];
    });
    const language = new Intl.Collator(undefined, { numeric: true });
    this.shown.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.number - b.number;
      const order = typeof a.key === "string" ? language.compare(a.key, b.key) : a.key - b.key;
      return this.direction * order || a.number - b.number;
    });
    this.say(population);
    this.box.scrollTop = 0;
    this.draw();
  }

  say(population) {
    const { populations } = this.page.index;
    byId("count").textContent = `${this.shown.length.toLocaleString("en")} of ${this.rollouts.length.toLocaleString("en")}`;
    const chosen = populations.length === 1 ? populations[0] : populations[population];
    byId("population-note").textContent = population === "" && populations.length > 1 ? "" : chosen.note;
    this.heads.forEach((head, k) => {
      const isSorted = this.columns[k] === this.sorted;
      if (isSorted) head.setAttribute("aria-sort", this.direction > 0 ? "ascending" : "descending");
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
    const rows = this.shown.slice(first, last).map(({ number }, k) => this.row(number, first + k));
    const nothing = count === 0 ? element("tr", { class: "nothing" }, element("td", { class: "soft" }, "No rollout fits.")) : null;
    fill(byId("rows"), [space(first), ...rows, nothing, space(count - last)]);
    this.box.querySelector("table").setAttribute("aria-rowcount", String(count + 1));
  }

  // The row of a rollout, made once for as long as it is near the screen.
  row(number, place) {
    if (this.rows.size > 400) this.rows.clear();
    if (!this.rows.has(number)) {
      const rollout = this.rollouts[number];
      const cells = this.columns.map(({ kind, cell }) => element("td", { class: kind }, cell(rollout)));
      const made = element("tr", { id: `row-${number}` }, ...cells);
      cells[0].title = rollout.question || rollout.problem;
      made.addEventListener("click", () => this.page.open(number));
      this.rows.set(number, made);
    }
    const row = this.rows.get(number);
    const isChosen = number === this.page.chosen;
    row.setAttribute("aria-rowindex", String(place + 2));
    row.setAttribute("aria-selected", String(isChosen));
    row.classList.toggle("on", isChosen);
    return row;
  }

  // The chosen rollout in view, without moving the page.
  reveal() {
    const place = this.placeOf(this.page.chosen);
    const { scrollTop, clientHeight } = this.box;
    if (place >= 0 && (ROW * place < scrollTop || ROW * (place + 2) > scrollTop + clientHeight)) this.box.scrollTop = ROW * place - clientHeight / 3;
    this.draw();
    this.box.setAttribute("aria-activedescendant", `row-${this.page.chosen}`);
  }

  placeOf(number) {
    return this.shown.findIndex((row) => row.number === number);
  }

  // The rollout `distance` rows further on, or the first where the open one is not listed.
  neighbour(distance) {
    const place = this.placeOf(this.page.chosen);
    const row = this.shown[place < 0 ? 0 : place + distance];
    return row ? row.number : null;
  }

  press(event) {
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey) return;
    const end = this.shown.at(-1);
    const targets = { ArrowDown: () => this.neighbour(1), ArrowUp: () => this.neighbour(-1), Home: () => this.shown[0]?.number, End: () => end?.number };
    if (event.key === "Enter") this.page.panel.tokens.focus();
    else if (Object.hasOwn(targets, event.key)) this.page.open(targets[event.key]());
    else return;
    event.preventDefault();
  }
}
