"use strict";
class Viewer {
  constructor(data) {
    this.data = data;
    this.state = { rollout: data.rollouts[0], checkpoint: data.checkpoints.length - 1, divergence: data.divergence, scale: "sqrt", lines: true };
    // Without any known wrong step, as where only answers are checked, neither marks nor filter speak of them.
    this.knowsWrong = data.rollouts.some((rollout) => rollout.wrong.length > 0);
    this.spans = [];
    this.timer = null;
    this.tooltip = new Tooltip(byId("tooltip"), data);
    this.chart = new PositionChart(byId("positions"), data, {
      onPosition: (position) => this.light(position),
      onCheckpoint: (checkpoint) => this.setCheckpoint(checkpoint),
    });
    this.bindToolbar();
    this.bindList();
    this.bindTrace();
    darkMode.addEventListener("change", () => this.recolour());
    this.listRollouts();
    this.showRollout();
  }

  get entry() {
    return this.state.rollout.by_checkpoint[this.state.checkpoint];
  }

  // Toolbar

  bindToolbar() {
    const slider = byId("checkpoint");
    slider.max = this.data.checkpoints.length - 1;
    fill(byId("checkpoint-marks"), this.data.checkpoints.map((label, i) => element("option", { value: i, label })));
    slider.addEventListener("input", () => this.setCheckpoint(Number(slider.value)));
    for (const name of ["divergence", "scale"]) {
      for (const input of document.querySelectorAll(`input[name="${name}"]`)) {
        input.checked = input.value === this.state[name];
        input.addEventListener("change", () => {
          this.state[name] = input.value;
          this.listRollouts();
          this.recolour();
        });
      }
    }
    byId("lines").addEventListener("change", (event) => {
      this.state.lines = event.target.checked;
      this.showTokens();
      this.showFinal();
    });
    byId("play").addEventListener("click", () => (this.timer === null ? this.play() : this.stop()));
    this.setPlayIcon();
  }

  setPlayIcon() {
    const path = this.timer === null ? "M3 1l8 5-8 5z" : "M2 1h3v10h-3zM7 1h3v10h-3z";
    fill(byId("play"), [svg("svg", { width: 12, height: 12, viewBox: "0 0 12 12" }, svg("path", { d: path }))]);
  }

  play() {
    const last = this.data.checkpoints.length - 1;
    this.setCheckpoint(this.state.checkpoint === last ? 0 : this.state.checkpoint + 1, false);
    this.timer = window.setInterval(() => {
      if (this.state.checkpoint >= last) this.stop();
      else this.setCheckpoint(this.state.checkpoint + 1, false);
    }, 850);
    this.setPlayIcon();
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = null;
    this.setPlayIcon();
  }

  setCheckpoint(checkpoint, byHand = true) {
    if (byHand && this.timer !== null) this.stop();
    this.state.checkpoint = checkpoint;
    this.listRollouts();
    this.recolour();
  }

  // List of rollouts

  bindList() {
    const list = byId("rollout-list");
    byId("filter").addEventListener("change", () => this.listRollouts());
    byId("filter").hidden = !this.knowsWrong;
    const population = byId("population");
    fill(population, this.data.populations.map((one) => element("option", { value: one.id }, `${one.title}: ${one.shown < one.total ? `${one.shown} of ${one.total}` : one.total}`)));
    population.addEventListener("change", () => this.choosePopulation());
    this.describePopulation();
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.choose(Number(option.dataset.index));
    });
    list.addEventListener("keydown", (event) => {
      const options = [...list.querySelectorAll("[role=option]")];
      const at = options.indexOf(document.activeElement);
      const target = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: options.length - 1 }[event.key];
      if (target === undefined || !options[target]) return;
      event.preventDefault();
      this.choose(Number(options[target].dataset.index));
      byId("rollout-list").querySelector("[aria-selected=true]").focus();
    });
  }

  choosePopulation() {
    byId("filter").value = "all";
    this.describePopulation();
    this.choose(this.data.rollouts.findIndex((rollout) => rollout.population === byId("population").value));
    byId("rollout-list").scrollTop = 0;
  }

  describePopulation() {
    byId("population-note").textContent = this.data.populations.find((one) => one.id === byId("population").value).note;
  }

  // Where the top spike of a rollout falls at the chosen checkpoint: first, wrong, other, unmarked (no wrong step is
  // known) or none (not measured).
  hit(rollout) {
    const top = topPosition(rollout.by_checkpoint[this.state.checkpoint], this.state.divergence);
    if (top === null) return "none";
    if (!rollout.wrong.length) return "unmarked";
    if (top === rollout.first_wrong) return "first";
    return rollout.wrong.some(([position]) => position === top) ? "wrong" : "other";
  }

  listRollouts() {
    const wanted = byId("filter").value;
    const words = { first: "● first wrong step", wrong: "○ later wrong step", other: "○ elsewhere", unmarked: "no wrong step known", none: "not measured" };
    const population = byId("population").value;
    const options = [];
    this.data.rollouts.forEach((rollout, index) => {
      const hit = this.hit(rollout);
      if (rollout.population !== population) return;
      if (wanted !== "all" && wanted !== hit) return;
      const chosen = rollout === this.state.rollout;
      options.push(element(
        "div", { role: "option", "aria-selected": chosen ? "true" : "false", tabindex: chosen ? 0 : -1, "data-index": index },
        element("div", { class: "option-question" }, rollout.question || rollout.problem),
        element("div", { class: "option-detail" }, element("span", {}, rollout.kind), this.knowsWrong || hit === "none" ? element("span", { class: hit === "first" ? "hit" : "" }, words[hit]) : null),
      ));
    });
    // A list without the chosen rollout must still be reachable with the Tab key.
    if (options.length && !options.some((option) => option.tabIndex === 0)) options[0].tabIndex = 0;
    const list = byId("rollout-list");
    const top = list.scrollTop;
    fill(list, options.length ? options : [element("div", { class: "empty" }, "No rollout of this sort at this checkpoint.")]);
    list.scrollTop = top;
  }

  choose(index) {
    this.state.rollout = this.data.rollouts[index];
    this.listRollouts();
    this.showRollout();
  }

  // One rollout

  showRollout() {
    const { rollout } = this.state;
    const fact = (name, value, kind) => element("div", { class: kind || "" }, element("dt", {}, name), element("dd", value ? {} : { class: "none" }, value || "none read"));
    fill(byId("facts"), [
      fact("Problem", rollout.question || rollout.problem),
      fact("Gold answer", rollout.gold),
      fact(rollout.source === "imported" ? "Answer of the response" : `Answer of ${rollout.source}`, rollout.answer, rollout.correct ? "" : "wrong-answer"),
      rollout.source === this.data.final ? null : fact(`Answer of ${this.data.final}`, rollout.final ? rollout.final.answer : "not measured"),
    ]);
    byId("lines-option").hidden = !rollout.tokens.includes(";");
    this.showCausal();
    this.showFinal();
    this.showTokens();
  }

  showTokens() {
    const { rollout, lines } = this.state;
    this.tooltip.hide();
    const nodes = [];
    this.spans = rollout.tokens.map((text, position) => {
      const isSpecial = text === "";
      const gap = rollout.gaps[position] || (isSpecial ? " " : "");
      const breaks = lines && position > 0 && rollout.tokens[position - 1] === ";" && gap === " " && !isSpecial;
      const span = element("span", { class: "token", role: "listitem", tabindex: position === 0 ? 0 : -1, "data-position": position, "aria-describedby": "tooltip" }, isSpecial ? this.data.vocabulary[rollout.words[position]] : text.replace(/\n/g, "↵\n"));
      nodes.push(document.createTextNode(breaks ? "\n" : gap), span);
      return span;
    });
    nodes.push(document.createTextNode(rollout.gaps[rollout.tokens.length] || ""));
    byId("trace").replaceChildren(...nodes);
    this.recolour();
  }

  recolour() {
    const { rollout, checkpoint, divergence, scale } = this.state;
    const { entry } = this;
    const top = this.data.max[divergence];
    const spikes = entry ? entry.spikes[divergence] : [];
    const highest = topPosition(entry, divergence);
    const wrong = new Set(rollout.wrong.map(([position]) => position));
    this.spans.forEach((span, position) => {
      const place = entry ? scalePosition(entry[divergence][position], top, scale) : 0;
      const colour = rampColour(place);
      span.style.setProperty("background-color", place < 0.02 ? "transparent" : css(colour));
      span.style.setProperty("color", place < 0.02 ? "inherit" : inkOn(colour));
      span.className = ["token", rollout.tokens[position] === "" && "special", spikes.includes(position) && "spike", highest === position && "top", wrong.has(position) && "wrong", rollout.first_wrong === position && "first"].filter(Boolean).join(" ");
    });
    const slider = byId("checkpoint");
    const label = this.data.checkpoints[checkpoint];
    const step = this.data.steps[checkpoint];
    slider.value = checkpoint;
    slider.setAttribute("aria-valuetext", label);
    fill(byId("checkpoint-label"), [element("b", {}, label), step === null ? "" : element("span", {}, `global step ${step}`)]);
    this.showLegend();
    this.chart.draw(this.state);
    this.refreshTooltip();
  }

  showLegend() {
    const { divergence, scale } = this.state;
    const top = this.data.max[divergence];
    const width = 168;
    const cells = Array.from({ length: 42 }, (_, i) => svg("rect", { x: i * 4, y: 2, width: 4.3, height: 10, fill: css(rampColour((i + 0.5) / 42)) }));
    const ticks = [0, 0.5, 1].map((place) => svg("text", { x: place * width, y: 25, "text-anchor": ["start", "middle", "end"][place * 2], fill: "currentColor", "font-size": 11 }, place === 0 && scale === "log" ? `≤ ${nats(scaleValue(0, top, scale))}` : nats(scaleValue(place, top, scale))));
    const ramp = svg("svg", { class: "ramp", width, height: 28, role: "img", "aria-label": "Colour scale in nats" }, ...cells, ...ticks);
    const mark = (kind, text) => element("span", {}, element("span", { class: `sample token ${kind}`, "aria-hidden": "true" }, "1"), text);
    fill(byId("legend"), [
      element("span", {}, `${this.data.divergence_names[divergence]}, nats`), ramp,
      mark("spike top", "top spike"), mark("spike", "other spike"),
      ...(this.knowsWrong ? [mark("wrong first", "first wrong step"), mark("wrong", "wrong step")] : []),
    ]);
  }

  showCausal() {
    const { rollout } = this.state;
    const names = { spike: "At the top spike", matched: "At a matched position", random: "At a random position" };
    const owners = { reference: this.data.reference, checkpoint: this.data.final, alternative: "neither" };
    const places = new Map();
    for (const row of rollout.causal) {
      const key = `${row.selection} ${row.position} ${row.spike}`;
      places.set(key, [...(places.get(key) || []), row]);
    }
    const order = Object.keys(names);
    const groups = [...places.values()].sort((a, b) => order.indexOf(a[0].selection) - order.indexOf(b[0].selection));
    const blocks = groups.map((arms) => {
      const rows = Object.keys(owners).flatMap((arm) => arms.filter((row) => row.arm === arm)).map((row) => {
        const bar = element("i", { class: "on" });
        bar.style.setProperty("width", `${row.num ? (100 * row.successes) / row.num : 0}%`);
        return element("div", { class: "trial" }, element("span", {}, token(row.token), ` of ${owners[row.arm]}`), element("span", { class: "meter" }, bar), element("span", {}, `${row.successes} of ${row.num} right`));
      });
      return element("div", {}, element("p", { class: "trial-head" }, `${names[arms[0].selection] || arms[0].selection}, position ${arms[0].position}`), ...rows);
    });
    const continued = rollout.causal.length && rollout.causal[0].policy === "checkpoint" ? this.data.final : this.data.reference;
    const lead = `The text up to the position is kept, one token is forced, ${continued} continues.`;
    fill(byId("causal-rollout"), [element("h3", {}, "Causal test on this rollout"), ...(blocks.length ? [element("p", { class: "note" }, lead), ...blocks] : [element("p", { class: "note" }, "Not measured for this rollout.")])]);
  }

  showFinal() {
    const { rollout } = this.state;
    const title = element("h3", {}, `What ${this.data.final} writes itself`);
    if (rollout.source === this.data.final) return fill(byId("final-text"), [title, element("p", { class: "note" }, "The text above is its own.")]);
    if (!rollout.final) return fill(byId("final-text"), [title, element("p", { class: "note" }, "Not measured.")]);
    const broken = (words) => (this.state.lines ? words.replace(/ ; /g, " ;\n") : words);
    const own = broken(rollout.final.text);
    const text = broken(rollout.tokens.map((piece, i) => rollout.gaps[i] + piece).join(""));
    let same = 0;
    while (same < own.length && own[same] === text[same]) same += 1;
    // Cut between words, not inside one.
    while (same > 0 && same < own.length && !/\s/.test(own[same - 1])) same -= 1;
    return fill(byId("final-text"), [
      title,
      element("p", { class: "note" }, "Its own greedy completion; grey as far as it is the same text."),
      element("p", { class: "final-words" }, element("span", { class: "same" }, own.slice(0, same)), own.slice(same)),
    ]);
  }

  // Details of a token

  bindTrace() {
    const trace = byId("trace");
    const positionOf = (event) => {
      const span = event.target.closest(".token");
      return span ? Number(span.dataset.position) : null;
    };
    trace.addEventListener("pointerover", (event) => this.openTooltip(positionOf(event)));
    trace.addEventListener("pointerleave", () => this.closeTooltip());
    trace.addEventListener("focusin", (event) => this.openTooltip(positionOf(event)));
    trace.addEventListener("focusout", () => this.closeTooltip());
    trace.addEventListener("click", (event) => positionOf(event) !== null && this.focusToken(positionOf(event)));
    trace.addEventListener("keydown", (event) => this.moveFocus(event));
    window.addEventListener("scroll", () => this.refreshTooltip(), { passive: true });
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.closeTooltip());
  }

  moveFocus(event) {
    const at = this.spans.indexOf(document.activeElement);
    if (at < 0) return;
    const last = this.spans.length - 1;
    const target = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last, ArrowDown: this.lineNeighbour(at, 1), ArrowUp: this.lineNeighbour(at, -1) }[event.key];
    if (target === undefined || target < 0 || target > last) return;
    event.preventDefault();
    this.focusToken(target);
  }

  // The token of the next or previous line that lies nearest in the horizontal.
  lineNeighbour(at, direction) {
    const boxes = this.spans.map((span) => span.getBoundingClientRect());
    const beyond = boxes.map((box, i) => [i, box]).filter(([, box]) => direction * (box.top - boxes[at].top) > 4);
    if (!beyond.length) return at;
    const line = direction * Math.min(...beyond.map(([, box]) => direction * box.top));
    const near = beyond.filter(([, box]) => Math.abs(box.top - line) < 4);
    near.sort(([, a], [, b]) => Math.abs(a.left - boxes[at].left) - Math.abs(b.left - boxes[at].left));
    return near[0][0];
  }

  focusToken(position) {
    for (const span of this.spans) span.tabIndex = -1;
    this.spans[position].tabIndex = 0;
    this.spans[position].focus();
  }

  openTooltip(position) {
    if (position === null) return;
    this.open = position;
    this.light(position, false);
    const { rollout, checkpoint, divergence } = this.state;
    this.tooltip.show(this.spans[position], this.tooltip.content(rollout, position, checkpoint, divergence));
  }

  refreshTooltip() {
    if (!this.tooltip.node.hidden && this.spans[this.open]) this.openTooltip(this.open);
  }

  closeTooltip() {
    this.tooltip.hide();
    this.light(null);
  }

  light(position, mark = true) {
    for (const span of byId("trace").querySelectorAll(".lit")) span.classList.remove("lit");
    if (position !== null && mark) this.spans[position].classList.add("lit");
    this.chart.light(position);
  }
}
