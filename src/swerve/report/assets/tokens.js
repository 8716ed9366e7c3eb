"use strict";
// Tokens of all rollouts as rows of the list, with the numbers of the chosen checkpoint.
const MOST_BEFORE = 28;

const TOKEN_COLUMNS = [
  { name: "Token", kind: "token", starts: 1, value: ({ word }) => word, cell: ({ word }) => element("bdi", {}, visible(word.replace(/^ (?=\S)/, ""))) },
  { name: "After", hint: "The end of the text before it", kind: "context", starts: 1, value: ({ before }) => before, cell: ({ before }) => element("bdi", {}, before ? visible(before) : "") },
  { name: "Category", kind: "category", starts: 1, value: ({ category }) => category, cell: ({ category }) => category.replace(/_/g, " ") },
  { name: "Divergence", hint: "From the reference, nats", kind: "peak num", starts: -1, value: ({ divergence }) => divergence, cell: ({ divergence }) => (divergence === null ? "not finite" : nats(divergence)) },
  { name: "Rank", hint: "Of the reference → of the checkpoint; sorts by the places that it moved up", kind: "rank num", starts: -1, value: ({ ranks }) => ranks[0] - ranks[1], cell: ({ ranks }) => `${ranks[0]} → ${ranks[1]}` },
  { name: "Repair", hint: "Right continuations with the token as it was → with that of the trained model", kind: "repair num", starts: -1, value: ({ effect }) => (effect ? (effect[1] - effect[0]) / effect[2] : null), cell: ({ effect }) => (effect ? `${effect[0]} → ${effect[1]} of ${effect[2]}` : "") },
];

// The end of the text before a token.
function textBefore({ tokens, gaps }, position) {
  let text = gaps[position];
  for (let k = position - 1; k >= 0 && text.length < MOST_BEFORE; k -= 1) text = gaps[k] + tokens[k] + text;
  return text.slice(-MOST_BEFORE).trim();
}

// What forcing the trained model's token does, by the position of each token where that was tried: right
// continuations with the token as it was, with the other, and how many there are.
const effects = new WeakMap();
function effectsOf(rollout) {
  if (!effects.has(rollout)) {
    const own = new Map(rollout.swaps.filter(({ arm }) => arm === "reference").map((swap) => [swap.position, swap.successes]));
    const forced = rollout.swaps.filter(({ arm, position }) => arm === "checkpoint" && own.has(position));
    effects.set(rollout, new Map(forced.map(({ position, successes, num }) => [position, [own.get(position), successes, num]])));
  }
  return effects.get(rollout);
}

class TokenItems {
  // `decoded`: the rollouts that are unpacked, null for the others.
  constructor(page, decoded) {
    this.page = page;
    this.decoded = decoded;
    this.noun = "token";
    this.entries = page.index.rollouts;
    const places = decoded.flatMap((rollout, number) => (rollout ? rollout.tokens.flatMap((_, position) => (rollout.given.has(position) ? [] : [[number, position]])) : []));
    this.numbers = Int32Array.from(places, ([number]) => number);
    this.positions = Int32Array.from(places, ([, position]) => position);
    this.names = [...new Set(decoded.flatMap((rollout) => (rollout ? rollout.categories : [])))].filter(Boolean).sort();
    const isForced = decoded.some((rollout) => rollout && effectsOf(rollout).size);
    this.columns = TOKEN_COLUMNS.filter(({ name }) => (name !== "Repair" || isForced) && (name !== "Category" || this.names.length > 1));
    this.sorted = this.columns.find(({ name }) => name === "Divergence");
    this.first = this.sorted;
    this.direction = -1;
  }

  get count() {
    return this.numbers.length;
  }

  place(id) {
    return { number: this.numbers[id], token: this.positions[id] };
  }

  idOf(number, token) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.numbers[middle] < number || (this.numbers[middle] === number && this.positions[middle] < token)) low = middle + 1;
      else high = middle;
    }
    return this.numbers[low] === number && this.positions[low] === token ? low : null;
  }

  category(id) {
    return this.decoded[this.numbers[id]].categories[this.positions[id]];
  }

  // All that the list shows of a token; numbers are those of the chosen checkpoint.
  item(id) {
    const [number, position] = [this.numbers[id], this.positions[id]];
    const rollout = this.decoded[number];
    const { checkpoint, divergence } = this.page;
    const at = (column) => (column && Number.isFinite(column[position]) ? column[position] : null);
    return {
      get word() { return rollout.tokens[position] || rollout.words[position]; },
      before: textBefore(rollout, position),
      category: rollout.categories[position] || "",
      divergence: at(rollout.column(divergence, checkpoint)),
      ranks: [at(rollout.ofReference("rank")), at(rollout.column("rank", checkpoint))],
      effect: effectsOf(rollout).get(position) || null,
      question: this.entries[number].question,
      problem: this.entries[number].problem,
    };
  }

  // Whether the words end in this token, or in it and what stands before it.
  has(id, words) {
    const rollout = this.decoded[this.numbers[id]];
    const position = this.positions[id];
    const before = withoutSpaces(textBefore(rollout, position));
    const text = before + withoutSpaces(rollout.tokens[position] || rollout.words[position]);
    return text.indexOf(words, Math.max(0, before.length - words.length + 1)) >= 0;
  }

  // The same columns as in Python: `run.tokens`.
  csv(ids) {
    return csvOf([tokenNames(this.page.index), ...ids.map((id) => tokenRow(this.page, this.decoded, this.numbers[id], this.positions[id], this.page.checkpoint))]);
  }
}

// The stored numbers of a token as [name, whether it is the reference's]; a divergence is of both models.
function statisticsOf({ columns, divergences }) {
  const isOfBoth = (name) => divergences.some(([divergence]) => divergence === name);
  return columns.flatMap((name) => (isOfBoth(name) ? [[name, false]] : [[name, false], [name, true]]));
}

function tokenNames(index) {
  const names = statisticsOf(index).map(([name, isReference]) => name + (isReference ? "_ref" : ""));
  return ["sequence_id", "problem_id", "position", "token", "context", "checkpoint", "reference", ...names, "rank", "rank_ref", "category", "rank_change", "repair"];
}

// A token of one checkpoint as a row of a file; numbers are those that the page stores, right to 0.4%.
function tokenRow({ index }, decoded, number, position, checkpoint) {
  const rollout = decoded[number];
  const at = (name, isReference) => {
    const column = isReference ? rollout.ofReference(name) : rollout.column(name, checkpoint);
    return column && Number.isFinite(column[position]) ? Number(column[position].toPrecision(4)) : null;
  };
  const [rank, before] = [at("rank", false), at("rank", true)];
  const effect = effectsOf(rollout).get(position);
  const last = [rollout.categories[position] || "", rank === null ? null : before - rank, effect ? (effect[1] - effect[0]) / effect[2] : null];
  const statistics = statisticsOf(index).map(([name, isReference]) => at(name, isReference));
  return [number, index.rollouts[number].problem, position, rollout.tokens[position] || rollout.words[position], textBefore(rollout, position), index.checkpoints[checkpoint].label, index.reference, ...statistics, rank, before, ...last];
}
