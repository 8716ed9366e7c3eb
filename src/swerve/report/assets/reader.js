"use strict";
// One rollout: its tokens, shaded by how far training moved each, and what both models would write at one of them.
// It stands twice on a page, on the first screen and beside the list; `page` (links.js) is what the two share. Its parts
// have files of their own: text.js, film.js, models.js and swaps.js.
// For so many frames lines that come into view may still move the ones below.
const FRAMES = 5;

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
    this.tokens = this.part("tokens");
    this.text = new TokenText(this);
    this.film = new Film(this);
    this.map = this.isWhole ? new CheckpointMap(this) : null;
    this.swaps = new Swaps(this);
    this.models = [new TopTokens("base"), new TopTokens("trained")];
    fill(this.part("models"), this.models.map((model) => model.node));
    this.bind();
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  bind() {
    this.tokens.addEventListener("pointerover", (event) => this.preview(this.text.positionOf(event.target)));
    this.tokens.addEventListener("pointerleave", () => this.preview(null));
    this.tokens.addEventListener("click", (event) => this.pin(this.text.positionOf(event.target)));
    this.tokens.addEventListener("keydown", (event) => this.press(event));
    for (const kind of ["pointerdown", "focusin"]) this.root.addEventListener(kind, () => { this.page.active = this; });
    if (!this.isWhole) return;
    for (const [name, key] of [["divergence", "divergence"], ["curve", "scale"]]) {
      this.part(name).addEventListener("change", (event) => this.page.setShade(key, event.target.value));
    }
    fill(this.part("divergence"), this.page.index.divergences.map(([key, name]) => element("option", { value: key }, name)));
    this.part("own").addEventListener("toggle", () => this.showOwn());
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
    this.text.open();
    this.swaps.show();
    this.part("key-wrong").hidden = this.wrong.size === 0;
    this.part("key-wrong").firstChild.textContent = [...this.wrong.values()].some((wanted) => wanted !== null) ? "wrong step" : "first wrong sentence";
    this.part("key-given").hidden = rollout.given.size === 0;
    if (this.isWhole) {
      this.offerOwn();
      this.map.open();
    } else {
      this.part("why").textContent = page.index.why;
    }
    this.repaint();
    this.text.centre(FRAMES);
  }

  // The problem and the answers, wrong ones struck through.
  showFacts() {
    const { entry, page } = this;
    const answer = (name, text, isWrong) => element("span", { class: "clamped" }, element("bdi", {}, name), " ", element(isWrong ? "s" : "b", { class: "mono", dir: "auto" }, text || "no answer"));
    const facts = [element("details", { class: "question" }, element("summary", {}, "Problem ", element("b", { class: "mono", dir: "auto" }, entry.question || entry.problem)))];
    // Of answers from a file it may not be known who wrote them.
    const source = entry.source === "imported" ? "answer in the file" : entry.source;
    if (entry.correct !== null || entry.answer) facts.push(answer(source, entry.answer, entry.correct === false));
    else if (source !== entry.source) facts.push(element("span", {}, "an answer from the file"));
    const own = entry.final_answer;
    if (own && entry.source !== page.index.final) facts.push(answer(page.index.final, own, entry.final_correct === false));
    if (entry.gold && entry.gold !== entry.answer && entry.gold !== own) facts.push(answer("right answer", entry.gold, false));
    fill(this.part("facts"), facts);
  }

  // Colours

  column(checkpoint) {
    return this.rollout.column(this.page.divergence, checkpoint);
  }

  top() {
    return this.page.index.top[this.page.divergence];
  }

  // After a change of checkpoint, divergence or scale: what is on the screen and nothing else.
  repaint() {
    const { page } = this;
    this.film.showCheckpoint();
    if (this.isWhole) [this.part("divergence").value, this.part("curve").value] = [page.divergence, page.scale];
    this.part("least").textContent = page.scale === "log" ? "a ten-thousandth" : "not at all";
    this.part("most").textContent = `${nats(this.top(), 3)} nats and more`;
    if (!this.rollout) return;
    this.text.repaint();
    this.show(this.token);
  }

  // Choosing a token: pointing at one shows it, a click or a key pins it.

  preview(position) {
    if (!this.rollout) return;
    this.hovered = position;
    this.show(position === null ? this.token : position);
  }

  pin(position) {
    if (position === null || !this.rollout) return;
    this.text.spans[this.token]?.classList.remove("on");
    this.token = this.ownFrom(position, position < this.token ? -1 : 1);
    this.text.paint(this.text.blockOf(this.token));
    this.text.spanOf(this.token).scrollIntoView({ block: "nearest" });
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
    const moves = { ArrowUp: () => this.pin(this.text.beside(-1)), ArrowDown: () => this.pin(this.text.beside(1)), Home: () => this.pin(0), End: () => this.pin(last), Enter: () => this.pin(this.hovered ?? this.token) };
    if (!Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
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
    if (position === this.entry.wrong && document.querySelector('#what-taught-it [data-id$="first_wrong"]')) {
      this.part("wanted").append(" ", element("a", { class: "link", href: "#what-taught-it" }, "What taught it?"));
    }
    this.part("numbers").textContent = this.numbers(position);
    this.film.show(position);
    if (this.isWhole) this.map.mark();
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
