"use strict";
// Reads what rollouts.py stores: the index of all rollouts, and the block of one of them when it is opened.

const blocks = new Map();

// A promise of one rollout, made once: what its block has beyond the list, and functions that return its numbers.
function readRollout(number) {
  if (!blocks.has(number)) {
    const promise = blockOf(number).then((bytes) => decodeRollout(bytes, pageData.rollouts, number));
    promise.catch(() => blocks.delete(number)); // what could not be fetched may be asked for again
    blocks.set(number, promise);
  }
  return blocks.get(number);
}

// The unpacked block: from the page, whose end may not be read yet, else from the server that the page came from.
async function blockOf(number) {
  if (!byId(`r${number}`) && document.readyState === "loading") {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  }
  const node = byId(`r${number}`);
  if (node) return gunzip(bytesOfBase64(node.textContent));
  if (!location.protocol.startsWith("http")) throw new Error("This rollout is not in the file; swerve view opens it.");
  const response = await fetch(`rollouts/${number}`);
  if (!response.ok) throw new Error(`The server answers ${response.status}.`);
  return gunzip(new Uint8Array(await response.arrayBuffer()));
}

function bytesOfBase64(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function gunzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// What a page shows where it is opened or saved: `csv` by name of a table, `evidence` by name of the rows, and `held`.
async function openedData() {
  return JSON.parse(new TextDecoder().decode(await gunzip(bytesOfBase64(pageData.opened))));
}

// Takes arrays of whole numbers off a block, which are stored in planes: first the lowest bytes of all, then the next.
class PlaneReader {
  constructor(bytes, offset) {
    this.bytes = bytes;
    this.offset = offset;
  }

  take(count, width) {
    const values = new Int32Array(count);
    for (let plane = 0; plane < width; plane += 1) {
      const start = this.offset + plane * count;
      for (let i = 0; i < count; i += 1) values[i] |= this.bytes[start + i] << (8 * plane);
    }
    this.offset += count * width;
    return values;
  }
}

// Undoes folded differences of rows of `width` numbers: 0, 1, 2, 3, 4 stand for 0, -1, 1, -2, 2.
function addUp(values, width, rows) {
  for (let i = 0; i < values.length; i += 1) {
    const step = (values[i] >>> 1) ^ -(values[i] & 1);
    values[i] = i % (width * rows) < width ? step : values[i - width] + step;
  }
  return values;
}

// Values of all codes, in nats; NaN for what was not measured or is not finite.
function valuesOfCodes({ lowest, highest, missing }) {
  const values = new Float32Array(missing + 1);
  for (let code = 1; code < missing; code += 1) values[code] = lowest * (highest / lowest) ** ((code - 1) / (missing - 2));
  values[missing] = NaN;
  return values;
}

// A value in nats as the cells have it, so that list and reader say the same of a token.
function asStored(value) {
  const { lowest, highest, missing } = pageData.rollouts.codes;
  if (value < lowest) return 0;
  const step = Math.log(highest / lowest) / (missing - 2);
  return lowest * Math.exp(step * Math.round(Math.log(Math.min(value, highest) / lowest) / step));
}

// Where each marked cell stands among the marked ones; -1 for the others.
function placesOfMarks(marks) {
  let count = 0;
  const places = marks.map((mark) => (mark ? count++ : -1));
  return { places, count };
}

function decodeRollout(bytes, index, number) {
  const textEnd = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(4, textEnd)));
  const [length, models, reader] = [index.rollouts[number].length, index.checkpoints.length + 1, new PlaneReader(bytes, textEnd)];
  const cells = length * models;

  // The order is that of `Rollouts.encode`.
  const words = reader.take(length, 3);
  const categories = reader.take(length, 2);
  const codes = addUp(reader.take(index.columns.length * cells, 2), length, models);
  for (let i = cells; i < 3 * cells; i += 1) codes[i] += codes[i - cells];
  const ranks = addUp(reader.take(cells, 3), length, models);
  const { places, count } = placesOfMarks(reader.take(cells, 1));
  const topWords = reader.take(facts.numTop * count, 3);
  const topProbs = reader.take(facts.numTop * count, 2);

  const values = valuesOfCodes(index.codes);
  const isMeasured = (model) => ranks.subarray(model * length, (model + 1) * length).some((rank) => rank > 0);

  // A column of one model, as numbers; null where the model was not measured on this rollout.
  function columnOf(name, model) {
    if (!isMeasured(model)) return null;
    const row = model * length;
    if (name === "rank") return Float32Array.from(ranks.subarray(row, row + length));
    const start = index.columns.indexOf(name) * cells + row;
    const sign = name.startsWith("logprob") ? -1 : 1;
    const column = new Float32Array(length);
    for (let i = 0; i < length; i += 1) column[i] = sign * values[codes[start + i]];
    return column;
  }

  // Each column is made once.
  const columns = new Map();
  function column(name, model) {
    const key = `${name} ${model}`;
    if (!columns.has(key)) columns.set(key, columnOf(name, model));
    return columns.get(key);
  }

  // The most likely tokens of one model at a position, with their probabilities; null where they are not kept.
  function top(model, position) {
    const place = places[model * length + position];
    if (place < 0) return null;
    const pairs = [];
    for (let i = place; i < topWords.length; i += count) {
      pairs.push([index.words[topWords[i]], topProbs[i] / 65535]);
    }
    return pairs;
  }

  return {
    tokens: facts.tokens,
    gaps: facts.gaps,
    given: new Set(facts.given),
    words: Array.from(words, (word) => index.words[word]),
    categories: Array.from(categories, (category) => index.categories[category]),
    finalText: facts.finalText,
    wrong: facts.wrong,
    spikes: facts.spikes,
    swaps: facts.swaps,
    column: (name, checkpoint) => column(name, checkpoint + 1),
    ofReference: (name) => column(name, 0),
    top: (checkpoint, position) => top(checkpoint + 1, position),
  };
}
