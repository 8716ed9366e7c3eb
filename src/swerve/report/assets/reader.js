"use strict";
// One rollout: its tokens, shaded by how far training moved each, and what both models would write at one of them.
// It stands twice on a page, on the first screen and beside the list; `page` (links.js) is what the two share.
const SHADES = 15;
const LOG_DECADES = 4;
// With fewer cases nothing is bold.
const FEW = 20;
// The most that a JS divergence can be, nats.
const LN_2 = 0.6931;
const LEAST_BLOCK = 100;
const MOST_BLOCK = 400;
const LONG_ROLLOUT = 150;
const MOST_DOTS = 40;
const MAP_CELLS = 64;
// Pixels for the names under the bars.
const NAMES_WIDTH = 360;
// For so many frames lines that come into view may still move the ones below.
const FRAMES = 5;
const PLAY = "M4 2l10 6-10 6z";
const PAUSE = "M3 2h4v12H3zM9 2h4v12H9z";
const SPACE_AT_START = /^\s/;
const SPACE_AT_END = /\s$/;
// Characters that turn the direction of the text after them.
const TURNS = /[\u202a-\u202e\u2066-\u2069]/;

// A divergence as a share of the scale: 1 as far as it goes, or one that is not finite.
function shareOf(value, top) {
  return Number.isNaN(value) ? 1 : Math.max(0, Math.min(1, value / top));
}

// The shade of a divergence: 0 is none, SHADES the whole scale.
function shade(value, top, scale) {
  const share = shareOf(value, top);
  return Math.round(SHADES * (scale === "log" ? Math.max(0, 1 + Math.log10(share) / LOG_DECADES) : Math.sqrt(share)));
}

// The gaps as they are shown: a text without lines whose steps end in " ; " gets a line for each step.
function shownGaps({ tokens, gaps }) {
  if (tokens.concat(gaps).some((text) => text.includes("\n"))) return gaps;
  return gaps.map((gap, k) => (gap === " " && tokens[k - 1] === ";" && gaps[k - 1] === " " && tokens[k] ? "\n" : gap));
}

// Ranges of 100 tokens and more that end at the end of a line, and between words where a line goes on beyond 400; gap
// k + 1 belongs to token k.
function cutBlocks(tokens, gaps) {
  const blocks = [];
  let first = 0;
  for (let end = 1; end <= tokens.length; end += 1) {
    const size = end - first;
    const endsLine = (tokens[end - 1] + gaps[end]).endsWith("\n");
    const endsWord = gaps[end] !== "" || size >= 2 * MOST_BLOCK;
    if (end === tokens.length || (size >= MOST_BLOCK && endsWord) || (size >= LEAST_BLOCK && endsLine)) {
      blocks.push({ first, end, node: null, isBuilt: false, isSeen: false });
      first = end;
    }
  }
  return blocks;
}

// Names without what they all begin with, as far as a separator: "rl-5" and "rl-80" are "5" and "80".
function shortNames(names) {
  let length = 0;
  while (names.length > 1 && length < names[0].length && names.every((name) => name[length] === names[0][length])) length += 1;
  const prefix = names[0].slice(0, length).match(/^.*[-_/ ]/)?.[0] ?? "";
  return names.map((name) => name.slice(prefix.length));
}

// What one model would write at a token: rows that are made once and then only change.
class TopTokens {
  constructor(kind) {
    this.title = element("b");
    this.role = element("span");
    this.rows = [];
    this.missing = element("p", { class: "soft" }, "Not kept for this token.");
    this.node = element("div", { class: `model ${kind}` }, element("h4", {}, this.title, " ", this.role), this.missing);
  }

  show(name, role, top, written) {
    this.title.textContent = name;
    this.role.textContent = role;
    this.missing.hidden = top.length > 0;
    while (this.rows.length < top.length) this.addRow();
    this.rows.forEach((row, k) => {
      row.node.hidden = k >= top.length;
      if (row.node.hidden) return;
      const [word, probability] = top[k];
      row.node.classList.toggle("written", word === written);
      row.word.textContent = visible(word);
      row.word.title = visible(word);
      row.meter.style.setProperty("width", `${100 * probability}%`);
      row.share.textContent = chance(probability);
    });
  }

  addRow() {
    const row = { word: element("span", { class: "word mono" }), meter: element("i"), share: element("span", { class: "share num" }) };
    row.node = element("div", { class: "top" }, row.word, element("span", { class: "meter" }, row.meter), row.share);
    this.rows.push(row);
    this.node.append(row.node);
  }
}

class Reader {
  constructor(root, page) {
    this.root = root;
    this.page = page;
    // The first screen has the half of it that is read at first.
    this.isWhole = root.querySelector(".own") !== null;
    this.number = null;
    this.rollout = null;
    this.request = 0;
    this.token = 0;
    this.blocks = [];
    this.tokens = this.part("tokens");
    this.models = [new TopTokens("base"), new TopTokens("trained")];
    fill(this.part("models"), this.models.map((model) => model.node));
    this.observer = new IntersectionObserver((entries) => this.see(entries), { root: this.tokens, rootMargin: "400px 0px" });
    this.buildFilm();
    this.bind();
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  // The checkpoints: a bar each, and the slider under them.

  buildFilm() {
    const { checkpoints } = this.page.index;
    const names = shortNames(checkpoints.map(({ name }) => name));
    // Only as many names as there is room for.
    const every = Math.ceil((names.length * (8 * Math.max(...names.map((name) => name.length)) + 8)) / NAMES_WIDTH);
    this.bars = checkpoints.map((checkpoint, k) => {
      const isNamed = (checkpoints.length - 1 - k) % every === 0;
      const bar = element("i");
      const button = element("button", { type: "button", tabindex: -1, "aria-label": checkpoint.label, title: checkpoint.label }, element("span", { class: "column" }, bar), element("span", { class: "num" }, isNamed ? names[k] : "\u00a0"));
      button.addEventListener("click", () => this.page.setCheckpoint(k));
      return { button, bar };
    });
    fill(this.part("bars"), this.bars.map(({ button }) => button));
    this.slider = this.root.querySelector("input[type=range]");
    this.slider.max = String(checkpoints.length - 1);
    this.part("strip").style.setProperty("--bars", String(checkpoints.length));
    this.part("film").hidden = checkpoints.length < 2;
  }

  bind() {
    this.slider.addEventListener("input", () => this.page.setCheckpoint(Number(this.slider.value)));
    this.part("play").addEventListener("click", () => this.page.play());
    this.tokens.addEventListener("pointerover", (event) => this.preview(this.positionOf(event.target)));
    this.tokens.addEventListener("pointerleave", () => this.preview(null));
    this.tokens.addEventListener("click", (event) => this.pin(this.positionOf(event.target)));
    this.tokens.addEventListener("keydown", (event) => this.press(event));
    for (const kind of ["pointerdown", "focusin"]) this.root.addEventListener(kind, () => { this.page.active = this; });
    if (!this.isWhole) return;
    for (const [name, key] of [["divergence", "divergence"], ["curve", "scale"]]) {
      this.part(name).addEventListener("change", (event) => this.page.setShade(key, event.target.value));
    }
    fill(this.part("divergence"), this.page.index.divergences.map(([key, name]) => element("option", { value: key }, name)));
    this.part("own").addEventListener("toggle", () => this.showOwn());
    this.part("map").addEventListener("click", (event) => this.pinCell(event.target));
  }

  // Another rollout; whether it is the one to show, or was overtaken by a later one.

  async open(number, token) {
    this.request += 1;
    const { request } = this;
    let rollout = null;
    try {
      rollout = await readRollout(number);
    } catch {
      // It is neither in this page nor behind it, or cannot be unpacked.
    }
    if (request !== this.request) return false;
    this.number = number;
    this.entry = this.page.index.rollouts[number];
    this.rollout = this.entry.length ? rollout : null;
    this.showFacts();
    this.part("halves").hidden = this.rollout === null;
    this.part("closed").hidden = this.rollout !== null;
    if (this.rollout) this.openTokens(token);
    else this.part("closed").textContent = this.whyClosed();
    return true;
  }

  whyClosed() {
    if (!this.entry.length) return "This rollout has no tokens.";
    if (this.entry.held) return "This browser cannot unpack the tokens of this rollout.";
    return "The tokens of this rollout are not in this file, which holds as many as a page can; swerve view opens them.";
  }

  openTokens(token) {
    const { rollout, entry, page } = this;
    this.hovered = null;
    this.wrong = new Map(rollout.wrong);
    this.token = this.ownFrom(token ?? entry.position ?? 0, 1);
    this.buildTokens();
    this.showSwaps();
    this.part("key-wrong").hidden = this.wrong.size === 0;
    this.part("key-given").hidden = rollout.given.size === 0;
    if (this.isWhole) {
      this.offerOwn();
      this.buildMap();
    } else {
      this.part("why").textContent = page.index.why;
    }
    this.repaint();
    this.centre(FRAMES);
  }

  // The problem and the answers, wrong ones struck through.
  showFacts() {
    const { entry, page } = this;
    const answer = (name, text, isWrong) => element("span", { class: "clamped" }, element("bdi", {}, name), " ", element(isWrong ? "s" : "b", { class: "mono", dir: "auto" }, text || "no answer"));
    const facts = [element("details", { class: "question" }, element("summary", {}, "Problem ", element("b", { class: "mono", dir: "auto" }, entry.question || entry.problem)))];
    if (entry.correct !== null || entry.answer) facts.push(answer(entry.source, entry.answer, entry.correct === false));
    const own = entry.final_answer;
    if (own && entry.source !== page.index.final) facts.push(answer(page.index.final, own, false));
    if (entry.gold && entry.gold !== entry.answer && entry.gold !== own) facts.push(answer("right answer", entry.gold, false));
    fill(this.part("facts"), facts);
  }

  buildTokens() {
    const { tokens, words } = this.rollout;
    this.gaps = shownGaps(this.rollout);
    this.spans = new Array(tokens.length);
    this.marks = tokens.map((text, k) => this.markOf(text || words[k], k));
    this.observer.disconnect();
    this.blocks = cutBlocks(tokens, this.gaps);
    const columns = Math.max(20, Math.floor((this.tokens.clientWidth || 400) / 9));
    for (const block of this.blocks) {
      const text = this.textOf(block);
      const lines = text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / columns)), 0);
      block.node = element("div", { class: "block", dir: "auto" }, text);
      block.node.style.setProperty("contain-intrinsic-block-size", `auto ${Math.round(1.8 * lines)}em`);
    }
    this.tokens.classList.toggle("long", tokens.length > LONG_ROLLOUT);
    this.tokens.classList.toggle("many", this.blocks.length > 1);
    fill(this.tokens, this.blocks.map(({ node }) => node));
    for (const { node } of this.blocks) this.observer.observe(node);
  }

  textOf({ first, end }) {
    const { tokens } = this.rollout;
    let text = first === 0 ? this.gaps[0] : "";
    for (let k = first; k < end; k += 1) text += tokens[k] + this.gaps[k + 1];
    return text;
  }

  // The classes of a token that stay: where its box may reach into spaces, wrong steps, and texts that need care.
  markOf(text, k) {
    const before = this.gaps[k] || (k > 0 ? this.rollout.tokens[k - 1] : " ");
    const after = this.gaps[k + 1] || this.rollout.tokens[k + 1] || " ";
    const marks = ["k"];
    if (SPACE_AT_END.test(before) && !SPACE_AT_START.test(text)) marks.push("begins");
    if (SPACE_AT_START.test(after) && !SPACE_AT_END.test(text)) marks.push("ends");
    if (this.rollout.tokens[k] === "") marks.push("special");
    if (this.rollout.given.has(k)) marks.push("given");
    if (this.wrong.has(k)) marks.push("wrong");
    if (text.includes("\n") && text.trim() === "") marks.push("newline");
    if (TURNS.test(text)) marks.push("turns");
    return marks.join(" ");
  }

  // Spans of a block are made when it is first seen.
  build(block) {
    if (block.isBuilt) return;
    block.isBuilt = true;
    const { tokens, words } = this.rollout;
    const nodes = block.first === 0 ? [this.gaps[0]] : [];
    for (let k = block.first; k < block.end; k += 1) {
      const isGiven = this.rollout.given.has(k);
      this.spans[k] = element("span", isGiven ? {} : { id: `${this.root.id}-${k}`, role: "option", "data-at": k }, tokens[k] || words[k]);
      nodes.push(this.spans[k], this.gaps[k + 1]);
    }
    fill(block.node, nodes);
  }

  blockOf(position) {
    return this.blocks.find((block) => position < block.end);
  }

  spanOf(position) {
    this.build(this.blockOf(position));
    return this.spans[position];
  }

  positionOf(target) {
    const span = target.closest("[data-at]");
    return span ? Number(span.dataset.at) : null;
  }

  see(entries) {
    for (const entry of entries) {
      const block = this.blocks.find(({ node }) => node === entry.target);
      if (!block) continue;
      block.isSeen = entry.isIntersecting;
      if (block.isSeen) this.paint(block);
    }
  }

  // Colours

  column(checkpoint) {
    return this.rollout.column(this.page.divergence, checkpoint);
  }

  top() {
    return this.page.index.top[this.page.divergence];
  }

  paint(block) {
    this.build(block);
    const values = this.column(this.page.checkpoint);
    const top = this.top();
    for (let k = block.first; k < block.end; k += 1) {
      const span = this.spans[k];
      const name = `${this.marks[k]} q${values && !this.rollout.given.has(k) ? shade(values[k], top, this.page.scale) : 0}${k === this.token ? " on" : ""}`;
      if (span.className !== name) span.className = name;
    }
  }

  // After a change of checkpoint, divergence or scale: what is on the screen and nothing else.
  repaint() {
    const { page } = this;
    this.slider.value = String(page.checkpoint);
    this.slider.setAttribute("aria-valuetext", page.index.checkpoints[page.checkpoint].label);
    this.showPlaying();
    if (this.isWhole) [this.part("divergence").value, this.part("curve").value] = [page.divergence, page.scale];
    this.part("least").textContent = page.scale === "log" ? "a ten-thousandth" : "not at all";
    this.part("most").textContent = `${nats(this.top())} nats and more`;
    if (!this.rollout) return;
    this.blockOf(this.token).isSeen = true;
    for (const block of this.blocks) if (block.isSeen) this.paint(block);
    this.show(this.token);
  }

  // The rollout over the checkpoints: a row for each, whose cells are as dark as the highest of a few tokens.

  buildMap() {
    const count = Math.min(MAP_CELLS, this.rollout.tokens.length);
    this.map = this.page.index.checkpoints.map(({ name }) => {
      const cells = Array.from({ length: count }, () => ({ node: element("i"), position: 0 }));
      return { name: element("span", { class: "num" }, name), cells };
    });
    fill(this.part("rows-of-map"), this.map.flatMap(({ name, cells }) => [name, element("div", { class: "cells" }, ...cells.map(({ node }) => node))]));
    this.paintMap();
  }

  paintMap() {
    if (!this.rollout) return;
    const { length } = this.rollout.tokens;
    this.map.forEach(({ cells }, row) => {
      const values = this.column(row);
      if (!values) return;
      cells.forEach((cell, k) => {
        const [first, end] = [k, k + 1].map((edge) => Math.floor((edge * length) / cells.length));
        cell.position = first;
        while (cell.position < end - 1 && this.rollout.given.has(cell.position)) cell.position += 1;
        for (let position = cell.position; position < end; position += 1) if (values[position] > values[cell.position]) cell.position = position;
        cell.node.className = `q${this.rollout.given.has(cell.position) ? 0 : shade(values[cell.position], this.top(), this.page.scale)}`;
      });
    });
  }

  // Where the reader is on the map.
  markMap() {
    for (const node of this.part("map").querySelectorAll(".on")) node.classList.remove("on");
    const { name, cells } = this.map[this.page.checkpoint];
    name.classList.add("on");
    cells[Math.floor(((this.token + 0.5) * cells.length) / this.rollout.tokens.length)].node.classList.add("on");
  }

  pinCell(target) {
    this.map.forEach(({ cells }, row) => {
      const cell = cells.find(({ node }) => node === target);
      if (!cell) return;
      this.page.setCheckpoint(row);
      this.pin(cell.position);
    });
  }

  showPlaying() {
    const isPlaying = this.page.timer !== null;
    this.part("play").setAttribute("aria-pressed", String(isPlaying));
    this.part("play").querySelector("path").setAttribute("d", isPlaying ? PAUSE : PLAY);
  }

  // Choosing a token: pointing at one shows it, a click or a key pins it.

  preview(position) {
    if (!this.rollout) return;
    this.hovered = position;
    this.show(position === null ? this.token : position);
  }

  pin(position) {
    if (position === null || !this.rollout) return;
    const before = this.spans[this.token];
    if (before) before.classList.remove("on");
    this.token = this.ownFrom(position, position < this.token ? -1 : 1);
    const span = this.spanOf(this.token);
    this.paint(this.blockOf(this.token));
    span.scrollIntoView({ block: "nearest" });
    this.show(this.token);
    this.part("unseen").textContent = `${this.part("numbers").textContent} ${this.part("wanted").textContent}`;
    this.page.moved(this);
  }

  // The token at a position, or the next in a direction that the model wrote; beyond the last one, the nearest.
  ownFrom(position, direction) {
    const { tokens, given } = this.rollout;
    let place = Math.max(0, Math.min(tokens.length - 1, position));
    const isOutside = () => place < 0 || place >= tokens.length;
    for (const step of [direction, -direction]) {
      while (given.has(place)) place += step;
      if (!isOutside()) break;
      place -= step;
    }
    return place;
  }

  press(event) {
    const last = this.rollout ? this.rollout.tokens.length - 1 : 0;
    const moves = { ArrowUp: () => this.pin(this.beside(-1)), ArrowDown: () => this.pin(this.beside(1)), Home: () => this.pin(0), End: () => this.pin(last), Enter: () => this.pin(this.hovered ?? this.token) };
    if (!Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  // The token above or below the pinned one, or null on the first and last line.
  beside(direction) {
    const from = this.spanOf(this.token).getBoundingClientRect();
    let [best, distance, line] = [null, Infinity, null];
    for (let k = this.token + direction; k >= 0 && k < this.rollout.tokens.length; k += direction) {
      const box = this.spanOf(k).getBoundingClientRect();
      if (this.rollout.given.has(k)) continue;
      if (Math.abs(box.top - from.top) < from.height / 2) continue;
      if (line !== null && Math.abs(box.top - line) > from.height / 2) break;
      line = box.top;
      if (Math.abs(box.left - from.left) < distance) [best, distance] = [k, Math.abs(box.left - from.left)];
    }
    return best;
  }

  // Positions of the checkpoint's spikes, the highest first.
  spikes() {
    return this.rollout.spikes[this.page.divergence][this.page.checkpoint];
  }

  // The next spike of the text in a direction, from the end to the start again.
  spike(direction) {
    if (!this.rollout) return;
    const known = this.spikes();
    const places = [...(known.length ? known : [this.entry.position])].sort((a, b) => direction * (a - b));
    this.pin(places.find((place) => direction * (place - this.token) > 0) ?? places[0]);
  }

  // The pinned token in the middle of the box, whose lines scroll in it; the page stays where it is.
  centre(frames) {
    const box = this.tokens.getBoundingClientRect();
    const place = this.spanOf(this.token).getBoundingClientRect();
    if (place.top < box.top + 20 || place.bottom > box.bottom - 20) this.tokens.scrollTop += place.top - box.top - box.height / 2;
    if (frames > 0) requestAnimationFrame(() => this.centre(frames - 1));
  }

  // What is known of one token.

  show(position) {
    const { rollout, page } = this;
    const { checkpoints, reference } = page.index;
    const label = checkpoints[page.checkpoint].label;
    const written = rollout.words[position];
    this.tokens.setAttribute("aria-activedescendant", `${this.root.id}-${this.token}`);
    const [before, after] = [rollout.top(-1, position), rollout.top(page.checkpoint, position)];
    const isKnown = Boolean(before || after);
    this.part("models").hidden = !isKnown;
    this.part("numbers").hidden = isKnown && !this.isWhole;
    this.part("halves").classList.toggle("bare", !isKnown && !this.part("swap").hasChildNodes());
    if (isKnown) {
      this.models[0].show(reference, "before", before || [], written);
      this.models[1].show(label, "after", after || [], written);
    }
    this.showBefore(position, isKnown);
    const wanted = this.wrong.get(position);
    const step = position === this.entry.wrong ? "The first wrong step" : "A wrong step";
    const said = wanted ? `${step}: a right step has ${quoted(wanted)} here.` : `${step}.`;
    this.part("wanted").textContent = wanted === undefined ? "" : wanted === null ? "In the first wrong sentence; which of its tokens is wrong is not known." : said;
    this.part("numbers").textContent = this.numbers(position);
    this.showFilm(position);
    if (this.isWhole) this.markMap();
  }

  // The end of the text that both models read.
  showBefore(position, isKnown) {
    const { tokens, gaps } = this.rollout;
    let text = "";
    let first = position;
    while (first > 0 && text.length < 18) {
      first -= 1;
      text = tokens[first] + gaps[first + 1] + text;
    }
    const [place, words] = this.part("after").children;
    this.part("after").hidden = !isKnown;
    place.textContent = position ? "after" : "first";
    words.textContent = (first > 0 ? "… " : "") + visible(text.trim());
  }

  numbers(position) {
    const { rollout, page } = this;
    const { label } = page.index.checkpoints[page.checkpoint];
    const pair = (name, format) => {
      const values = [rollout.ofReference(name), rollout.column(name, page.checkpoint)];
      return values.map((column) => (column ? format(column[position]) : "not measured")).join(" → ");
    };
    const category = (rollout.categories[position] || "").replace(/_/g, " ");
    const place = `Position ${position} of 0 to ${rollout.tokens.length - 1}${category ? `, ${category}` : ""}${this.spikeName(position)}.`;
    const own = statisticsOf(page.index).filter(([name, isReference]) => isReference && name !== "logprob");
    const others = own.map(([name]) => `${name.replace(/_/g, " ")} ${pair(name, nats)} nats`).join(", ");
    return `${quoted(rollout.words[position])}: probability ${pair("logprob", (value) => chance(Math.exp(value)))}, rank ${pair("rank", String)}, ${others} (${page.index.reference} → ${label}). ${place}`;
  }

  spikeName(position) {
    const spikes = this.spikes();
    const place = spikes.indexOf(position);
    return place < 0 ? "" : `, spike ${place + 1} of ${spikes.length} from the highest`;
  }

  // Bars: the divergence of this token at every checkpoint.
  showFilm(position) {
    const { page } = this;
    const top = this.top();
    this.bars.forEach(({ button, bar }, k) => {
      const values = this.column(k);
      const value = values ? values[position] : 0;
      bar.style.setProperty("height", `${100 * Math.max(0.03, Math.sqrt(shareOf(value, top)))}%`);
      bar.className = `q${Math.max(2, shade(value, top, page.scale))}`;
      button.classList.toggle("on", k === page.checkpoint);
    });
    const values = this.column(page.checkpoint);
    const name = page.index.divergences.find(([key]) => key === page.divergence)[1];
    const [checkpoint, rest] = this.part("now").children;
    checkpoint.textContent = page.index.checkpoints[page.checkpoint].label;
    const most = page.divergence === "js" ? LN_2 : Infinity;
    const limit = most < Infinity ? ` of at most ${most.toFixed(2)}` : "";
    rest.textContent = values ? `: ${name} at ${quoted(this.rollout.words[position])} ${nats(Math.min(values[position], most))}${limit} nats.` : ": not measured.";
  }

  // The causal test: one token forced, the rest written many times.

  showSwaps() {
    const { swaps } = this.rollout;
    const places = new Map();
    for (const swap of swaps) {
      const key = `${swap.selection} ${swap.position} ${swap.spike}`;
      places.set(key, [...(places.get(key) || []), swap]);
    }
    const tests = [...places.values()].filter((arms) => this.arm(arms, "reference") && this.arm(arms, "checkpoint"));
    const main = tests.find(([swap]) => swap.selection === "spike" && swap.spike === this.number) || tests[0];
    const others = this.isWhole ? tests.filter((arms) => arms !== main).map((arms) => this.control(arms)) : [];
    const isMissing = this.isWhole && !main && this.page.index.rollouts.some((rollout) => rollout.effect);
    fill(this.part("swap"), [
      main ? element("h3", {}, "Is this token the cause?") : null,
      ...(main ? [this.swapSentence(main), this.swapDots(main)] : []),
      ...others,
      isMissing ? element("p", { class: "soft" }, "No token of this rollout was swapped.") : null,
    ]);
  }

  arm(arms, name) {
    return arms.find((swap) => swap.arm === name);
  }

  writer(swap) {
    return swap.policy === "checkpoint" ? this.page.index.final : this.page.index.reference;
  }

  // Words that lead to a token.
  linkTo(position) {
    const button = element("button", { type: "button", class: "link" }, `position ${position}`);
    button.addEventListener("click", () => this.pin(position));
    return button;
  }

  swapSentence(arms) {
    const [own, changed, third] = ["reference", "checkpoint", "alternative"].map((name) => this.arm(arms, name));
    const [successes, num] = [changed.successes, changed.num], other = quoted(changed.token), was = quoted(own.token);
    const same = `${other} in place of ${was} changes nothing: ${successes} of ${num} right either way.`;
    const repaired = `Write ${other} instead of ${was} and ${this.writer(own)} finishes right ${successes} times out of ${num}, not ${own.successes}.`;
    // Few continuations decide nothing, and are not bold.
    const claim = element(num < FEW ? "span" : "b", {}, successes === own.successes ? same : repaired);
    const rest = third ? ` After ${quoted(third.token)}, which neither model would write, ${third.successes} of ${third.num}.` : "";
    return element("p", {}, claim, rest, " At ", this.linkTo(own.position), ".");
  }

  swapDots(arms) {
    const names = { reference: "as it was", checkpoint: `from ${this.page.index.final}`, alternative: "from neither" };
    const rows = Object.entries(names).flatMap(([name, text]) => {
      const swap = this.arm(arms, name);
      if (!swap) return [];
      return [element("span", {}, element("b", { class: "mono" }, visible(swap.token)), ` ${text}`), this.dots(swap, name === "checkpoint"), element("span", { class: "num" }, `${swap.successes} of ${swap.num}`)];
    });
    return element("div", { class: "dots" }, ...rows);
  }

  // A dot for each continuation, full where its answer is right; a bar where there are many.
  dots({ num, successes }, isOurs) {
    const full = isOurs ? "ours" : "null";
    const height = 12;
    const width = 12 * Math.min(num, MOST_DOTS);
    const marks = num <= MOST_DOTS
      ? Array.from({ length: num }, (_, k) => svg("circle", { cx: 6 + 12 * k, cy: 6, r: 4.3, class: k < successes ? full : "none" }))
      : [svg("rect", { width, height, rx: 3, class: "none" }), svg("rect", { width: (width * successes) / num, height, rx: 3, class: full })];
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "xMinYMid meet", "aria-hidden": "true" }, ...marks);
  }

  // The same swap at another token, in a line.
  control(arms) {
    const [own, changed] = [this.arm(arms, "reference"), this.arm(arms, "checkpoint")];
    const names = { matched: "At a token like it", random: "At a random token", spike: "At the spike" };
    return element("p", { class: "control num" }, `${names[own.selection] || own.selection}, `, this.linkTo(own.position), `, ${quoted(changed.token)} instead of ${quoted(own.token)}: ${own.successes} → ${changed.successes} of ${changed.num}${own.policy === "checkpoint" ? `, written by ${this.page.index.final}` : ""}.`);
  }

  offerOwn() {
    const { final } = this.page.index;
    this.part("own").open = false;
    this.part("own").hidden = !this.rollout.finalText || this.entry.source === final;
    this.part("own").querySelector("summary").textContent = `What ${final} writes itself`;
  }

  // What the final checkpoint writes for the same problem, grey as far as it is the same text; made when it is opened.
  showOwn() {
    if (!this.part("own").open || !this.rollout) return;
    const own = this.rollout.finalText;
    const text = this.rollout.tokens.map((token, k) => this.rollout.gaps[k] + token).join("");
    let same = 0;
    while (same < own.length && own[same] === text[same]) same += 1;
    while (same > 0 && same < own.length && !SPACE_AT_END.test(own[same - 1])) same -= 1;
    fill(this.part("text"), [element("span", { class: "soft" }, own.slice(0, same)), own.slice(same)]);
  }
}
