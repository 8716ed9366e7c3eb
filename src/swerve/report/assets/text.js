"use strict";
// The text of one rollout: its tokens in blocks of lines, whose spans are made and shaded when they are first seen.
const SHADES = 15;
const LOG_DECADES = 4;
const LEAST_BLOCK = 100;
const MOST_BLOCK = 400;
const LONG_ROLLOUT = 150;
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

class TokenText {
  constructor(reader) {
    this.reader = reader;
    this.box = reader.part("tokens");
    this.blocks = [];
    this.spans = [];
    this.observer = new IntersectionObserver((entries) => this.see(entries), { root: this.box, rootMargin: "400px 0px" });
  }

  open() {
    const { tokens, words } = this.reader.rollout;
    this.gaps = shownGaps(this.reader.rollout);
    this.spans = new Array(tokens.length);
    this.marks = tokens.map((text, k) => this.markOf(text || words[k], k));
    this.observer.disconnect();
    this.blocks = cutBlocks(tokens, this.gaps);
    const columns = Math.max(20, Math.floor((this.box.clientWidth || 400) / 9));
    for (const block of this.blocks) {
      const text = this.textOf(block);
      const lines = text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / columns)), 0);
      block.node = element("div", { class: "block", dir: "auto" }, text);
      block.node.style.setProperty("contain-intrinsic-block-size", `auto ${Math.round(1.8 * lines)}em`);
    }
    this.box.classList.toggle("long", tokens.length > LONG_ROLLOUT);
    this.box.classList.toggle("many", this.blocks.length > 1);
    fill(this.box, this.blocks.map(({ node }) => node));
    for (const { node } of this.blocks) this.observer.observe(node);
  }

  textOf({ first, end }) {
    const { tokens } = this.reader.rollout;
    let text = first === 0 ? this.gaps[0] : "";
    for (let k = first; k < end; k += 1) text += tokens[k] + this.gaps[k + 1];
    return text;
  }

  // The classes of a token that stay: where its box may reach into spaces, wrong steps, and texts that need care.
  markOf(text, k) {
    const { rollout, wrong } = this.reader;
    const before = this.gaps[k] || (k > 0 ? rollout.tokens[k - 1] : " ");
    const after = this.gaps[k + 1] || rollout.tokens[k + 1] || " ";
    const marks = ["k"];
    if (SPACE_AT_END.test(before) && !SPACE_AT_START.test(text)) marks.push("begins");
    if (SPACE_AT_START.test(after) && !SPACE_AT_END.test(text)) marks.push("ends");
    if (rollout.tokens[k] === "") marks.push("special");
    if (rollout.given.has(k)) marks.push("given");
    if (wrong.has(k)) marks.push("wrong");
    if (text.includes("\n") && text.trim() === "") marks.push("newline");
    if (TURNS.test(text)) marks.push("turns");
    return marks.join(" ");
  }

  // Spans of a block are made when it is first seen.
  build(block) {
    if (block.isBuilt) return;
    block.isBuilt = true;
    const { tokens, words, given } = this.reader.rollout;
    const nodes = block.first === 0 ? [this.gaps[0]] : [];
    for (let k = block.first; k < block.end; k += 1) {
      const isGiven = given.has(k);
      this.spans[k] = element("span", isGiven ? {} : { id: `${this.reader.root.id}-${k}`, role: "option", "data-at": k }, tokens[k] || words[k]);
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

  paint(block) {
    this.build(block);
    const { page, rollout, token } = this.reader;
    const values = this.reader.column(page.checkpoint);
    const top = this.reader.top();
    for (let k = block.first; k < block.end; k += 1) {
      const span = this.spans[k];
      const name = `${this.marks[k]} q${values && !rollout.given.has(k) ? shade(values[k], top, page.scale) : 0}${k === token ? " on" : ""}`;
      if (span.className !== name) span.className = name;
    }
  }

  // What is on the screen, and the token that is read.
  repaint() {
    this.blockOf(this.reader.token).isSeen = true;
    for (const block of this.blocks) if (block.isSeen) this.paint(block);
  }

  // The pinned token in the middle of the box, whose lines scroll in it; the page stays where it is.
  centre(frames) {
    const box = this.box.getBoundingClientRect();
    const place = this.spanOf(this.reader.token).getBoundingClientRect();
    if (place.top < box.top + 20 || place.bottom > box.bottom - 20) this.box.scrollTop += place.top - box.top - box.height / 2;
    if (frames > 0) requestAnimationFrame(() => this.centre(frames - 1));
  }

  // The token above or below the pinned one, or null on the first and last line.
  beside(direction) {
    const { rollout, token } = this.reader;
    const from = this.spanOf(token).getBoundingClientRect();
    let [best, distance, line] = [null, Infinity, null];
    for (let k = token + direction; k >= 0 && k < rollout.tokens.length; k += direction) {
      const box = this.spanOf(k).getBoundingClientRect();
      if (rollout.given.has(k)) continue;
      if (Math.abs(box.top - from.top) < from.height / 2) continue;
      if (line !== null && Math.abs(box.top - line) > from.height / 2) break;
      line = box.top;
      if (Math.abs(box.left - from.left) < distance) [best, distance] = [k, Math.abs(box.left - from.left)];
    }
    return best;
  }
}
