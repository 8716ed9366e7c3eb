"use strict";
// The causal test of one rollout: a token forced in place of its own, and the rest of the answer written many times.

// With fewer cases nothing is bold.
const FEW = 20;
const MOST_DOTS = 40;

class Swaps {
  constructor(reader) {
    this.reader = reader;
    this.index = reader.page.index;
  }

  show() {
    const { rollout: { swaps }, number, isWhole } = this.reader;
    const places = new Map();
    for (const swap of swaps) {
      const key = `${swap.selection} ${swap.position} ${swap.spike}`;
      places.set(key, [...(places.get(key) || []), swap]);
    }
    const tests = [...places.values()].filter((arms) => this.arm(arms, "reference") && this.arm(arms, "checkpoint"));
    const main = tests.find(([swap]) => swap.selection === "spike" && swap.spike === number) || tests[0];
    const others = isWhole ? tests.filter((arms) => arms !== main).map((arms) => this.control(arms)) : [];
    const isMissing = isWhole && !main && this.index.rollouts.some((rollout) => rollout.effect);
    fill(this.reader.part("swap"), [
      main ? element("h3", {}, "Is this token the cause?") : null,
      ...(main ? [this.sentence(main), this.table(main)] : []),
      ...others,
      isMissing ? element("p", { class: "soft" }, "No token of this rollout was swapped.") : null,
    ]);
  }

  arm(arms, name) {
    return arms.find((swap) => swap.arm === name);
  }

  writer(swap) {
    return swap.policy === "checkpoint" ? this.index.final : this.index.reference;
  }

  // Words that lead to a token.
  linkTo(position) {
    const button = element("button", { type: "button", class: "link" }, `position ${position}`);
    button.addEventListener("click", () => this.reader.pin(position));
    return button;
  }

  sentence(arms) {
    const [own, changed, third] = ["reference", "checkpoint", "alternative"].map((name) => this.arm(arms, name));
    const [successes, num] = [changed.successes, changed.num], other = quoted(changed.token), was = quoted(own.token);
    const never = `With ${other} as with ${was}, ${this.writer(own)} is right 0 of ${num}: where it is never right, nothing can be seen.`;
    const same = successes === 0 ? never : `${other} in place of ${was} changes nothing: ${successes} of ${num} right either way.`;
    const repaired = `Write ${other} instead of ${was} and ${this.writer(own)} finishes right ${successes} times out of ${num}, not ${own.successes}.`;
    // Few continuations decide nothing, and are not bold.
    const claim = element(num < FEW ? "span" : "b", {}, successes === own.successes ? same : repaired);
    const rest = third ? ` After ${quoted(third.token)}, the first choice of neither model, ${third.successes} of ${third.num}.` : "";
    return element("p", {}, claim, rest, " At ", this.linkTo(own.position), ".");
  }

  table(arms) {
    const names = { reference: "as it was", checkpoint: `from ${this.index.final}`, alternative: "from neither" };
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
    const replaced = `${quoted(changed.token)} instead of ${quoted(own.token)}: ${own.successes} → ${changed.successes} of ${changed.num} right`;
    // Most tokens are the same in both models, which is what a control is to show.
    const same = `${this.index.final} chooses ${quoted(own.token)} as well, so nothing is replaced: ${changed.successes} of ${changed.num} right`;
    const writer = own.policy === "checkpoint" ? `, written by ${this.index.final}` : "";
    return element("p", { class: "control num" }, `${names[own.selection] || own.selection}, `, this.linkTo(own.position), `, ${changed.token === own.token ? same : replaced}${writer}.`);
  }
}
