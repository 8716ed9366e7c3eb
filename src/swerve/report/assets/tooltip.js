"use strict";

class Tooltip {
  constructor(node, data) {
    this.node = node;
    this.data = data;
  }

  hide() {
    this.node.hidden = true;
  }

  show(anchor, content) {
    fill(this.node, content);
    this.node.hidden = false;
    const box = anchor.getClientRects()[0] || anchor.getBoundingClientRect();
    const { width, height } = this.node.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), window.innerWidth - width - 8);
    const above = box.top - height - 14;
    const below = box.bottom + 10;
    const top = below + height < window.innerHeight || above < 0 ? below : above;
    this.node.style.setProperty("left", `${Math.round(left)}px`);
    this.node.style.setProperty("top", `${Math.round(top)}px`);
  }

  // Everything known of one token: marks, both models' top tokens, and the numbers behind them.
  content(rollout, position, checkpoint, divergence) {
    const entry = rollout.by_checkpoint[checkpoint];
    const text = this.data.vocabulary[rollout.words[position]];
    const category = this.data.categories[rollout.categories[position]] || "";
    const where = [`position ${position}`, category.replace(/_/g, " ")].filter(Boolean).join(", ");
    const head = element("div", { class: "tip-head" }, token(text), element("span", { class: "where" }, where));
    const marks = this.marks(rollout, position, entry, divergence);
    if (!entry) return [head, marks, element("div", { class: "tip-divergences" }, "not measured at this checkpoint")];
    const label = this.data.checkpoints[checkpoint];
    const models = element(
      "div", { class: "tip-models" },
      this.model(`${this.data.reference} (reference)`, rollout.reference.top, position, text),
      this.model(label, entry.top, position, text),
    );
    return [head, marks, models, this.values(rollout, entry, position, label), this.divergences(entry, position, divergence)];
  }

  marks(rollout, position, entry, divergence) {
    const found = [];
    const wrong = rollout.wrong.find(([place]) => place === position);
    if (wrong) found.push(element("div", {}, position === rollout.first_wrong ? "First wrong step" : "Wrong step", ": a right step has ", token(wrong[1]), " here"));
    const height = entry ? entry.spikes[divergence].indexOf(position) : -1;
    const name = this.data.divergence_names[divergence];
    const note = (text) => element("div", { class: "spike-note" }, text);
    if (height === 0) found.push(note(`Top spike by ${name}`));
    else if (height > 0) found.push(note(`Spike by ${name}, number ${height + 1} from the highest`));
    else if (topPosition(entry, divergence) === position) found.push(note(`Highest ${name} of the rollout${this.hasSpikes(rollout) ? ", below the threshold of a spike" : ""}`));
    return found.length ? element("div", { class: "tip-marks" }, ...found) : null;
  }

  // Spikes are looked for in the headline population alone, which comes first.
  hasSpikes(rollout) {
    return rollout.population === this.data.populations[0].id;
  }

  model(name, top, position, realised) {
    const rows = [];
    const flat = top && top[position] ? top[position] : [];
    for (let i = 0; i < flat.length; i += 2) {
      const text = this.data.vocabulary[flat[i]];
      const bar = element("i", { class: "on" });
      bar.style.setProperty("width", `${100 * (flat[i + 1] || 0)}%`);
      rows.push(element("div", { class: text === realised ? "tip-token realised" : "tip-token" }, token(text), element("span", { class: "meter" }, bar), element("span", { class: "prob" }, probability(flat[i + 1]))));
    }
    return element("div", {}, element("h4", {}, name), ...(rows.length ? rows : [element("div", { class: "none" }, "top tokens not measured")]));
  }

  values(rollout, entry, position, label) {
    const row = (name, key, format) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, format(rollout.reference[key][position])), element("td", {}, format(entry[key][position])));
    return element(
      "table", { class: "tip-values" },
      element("thead", {}, element("tr", {}, element("th", {}, "This token"), element("th", { scope: "col" }, this.data.reference), element("th", { scope: "col" }, label))),
      element("tbody", {}, row("log-probability", "logprob", nats), row("rank", "rank", String), row("entropy of the distribution", "entropy", nats)),
    );
  }

  divergences(entry, position, chosen) {
    const items = Object.entries(this.data.divergence_names).map(([key, name]) => element("span", { class: key === chosen ? "chosen" : "" }, `${name} `, element("b", {}, nats(entry[key][position]))));
    return element("div", { class: "tip-divergences" }, ...items, element("span", {}, "nats"));
  }
}
