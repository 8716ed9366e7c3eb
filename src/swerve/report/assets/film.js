"use strict";
// The checkpoints of one rollout: a bar each with the slider under them, and a map of the rollout with a row for each.

// Pixels for the names under the bars.
const NAMES_WIDTH = 360;
// The most that a JS divergence can be, nats.
const LN_2 = 0.6931;
const MAP_CELLS = 64;
const PLAY = "M4 2l10 6-10 6z";
const PAUSE = "M3 2h4v12H3zM9 2h4v12H9z";

// Names without what they all begin with, as far as a separator: "rl-5" and "rl-80" are "5" and "80".
function shortNames(names) {
  let length = 0;
  while (names.length > 1 && length < names[0].length && names.every((name) => name[length] === names[0][length])) length += 1;
  const prefix = names[0].slice(0, length).match(/^.*[-_/ ]/)?.[0] ?? "";
  return names.map((name) => name.slice(prefix.length));
}

// The divergence of one token at every checkpoint.
class Film {
  constructor(reader) {
    this.reader = reader;
    this.page = reader.page;
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
    fill(this.reader.part("bars"), this.bars.map(({ button }) => button));
    this.slider = this.reader.root.querySelector("input[type=range]");
    this.slider.addEventListener("input", () => this.page.setCheckpoint(Number(this.slider.value)));
    this.slider.max = String(checkpoints.length - 1);
    this.reader.part("strip").style.setProperty("--bars", String(checkpoints.length));
    this.reader.part("film").hidden = checkpoints.length < 2;
    this.reader.part("play").addEventListener("click", () => this.page.play());
  }

  // Which checkpoint is chosen.
  showCheckpoint() {
    const { page } = this;
    this.slider.value = String(page.checkpoint);
    this.slider.setAttribute("aria-valuetext", page.index.checkpoints[page.checkpoint].label);
    this.showPlaying();
  }

  showPlaying() {
    const isPlaying = this.page.timer !== null;
    this.reader.part("play").setAttribute("aria-pressed", String(isPlaying));
    this.reader.part("play").querySelector("path").setAttribute("d", isPlaying ? PAUSE : PLAY);
  }

  // Bars: the divergence of this token at every checkpoint.
  show(position) {
    const { page, reader } = this;
    const top = reader.top();
    this.bars.forEach(({ button, bar }, k) => {
      const values = reader.column(k);
      const value = values ? values[position] : 0;
      bar.style.setProperty("height", `${100 * Math.max(0.03, Math.sqrt(shareOf(value, top)))}%`);
      bar.className = `q${Math.max(2, shade(value, top, page.scale))}`;
      button.classList.toggle("on", k === page.checkpoint);
    });
    const values = reader.column(page.checkpoint);
    const name = page.index.divergences.find(([key]) => key === page.divergence)[1];
    const [checkpoint, rest] = reader.part("now").children;
    checkpoint.textContent = page.index.checkpoints[page.checkpoint].label;
    const most = page.divergence === "js" ? LN_2 : Infinity;
    const limit = most < Infinity ? ` of at most ${most.toFixed(2)}` : "";
    rest.textContent = values ? `: ${name} at ${quoted(reader.rollout.words[position])} ${nats(Math.min(values[position], most))}${limit} nats.` : ": not measured.";
  }
}

// The rollout over the checkpoints: a row for each, whose cells are as dark as the highest of a few tokens.
class CheckpointMap {
  constructor(reader) {
    this.reader = reader;
    this.page = reader.page;
    this.rows = [];
    reader.part("map").addEventListener("click", (event) => this.pin(event.target));
  }

  open() {
    const count = Math.min(MAP_CELLS, this.reader.rollout.tokens.length);
    this.rows = this.page.index.checkpoints.map(({ name }) => {
      const cells = Array.from({ length: count }, () => ({ node: element("i"), position: 0 }));
      return { name: element("span", { class: "num" }, name), cells };
    });
    fill(this.reader.part("rows-of-map"), this.rows.flatMap(({ name, cells }) => [name, element("div", { class: "cells" }, ...cells.map(({ node }) => node))]));
    this.paint();
  }

  paint() {
    const { reader, page } = this;
    if (!reader.rollout) return;
    const { tokens: { length }, given } = reader.rollout;
    this.rows.forEach(({ cells }, row) => {
      const values = reader.column(row);
      if (!values) return;
      cells.forEach((cell, k) => {
        const [first, end] = [k, k + 1].map((edge) => Math.floor((edge * length) / cells.length));
        cell.position = first;
        while (cell.position < end - 1 && given.has(cell.position)) cell.position += 1;
        for (let position = cell.position; position < end; position += 1) if (values[position] > values[cell.position]) cell.position = position;
        cell.node.className = `q${given.has(cell.position) ? 0 : shade(values[cell.position], reader.top(), page.scale)}`;
      });
    });
  }

  // Where the reader is on the map.
  mark() {
    for (const node of this.reader.part("map").querySelectorAll(".on")) node.classList.remove("on");
    const { name, cells } = this.rows[this.page.checkpoint];
    name.classList.add("on");
    cells[Math.floor(((this.reader.token + 0.5) * cells.length) / this.reader.rollout.tokens.length)].node.classList.add("on");
  }

  pin(target) {
    this.rows.forEach(({ cells }, row) => {
      const cell = cells.find(({ node }) => node === target);
      if (!cell) return;
      this.page.setCheckpoint(row);
      this.reader.pin(cell.position);
    });
  }
}
