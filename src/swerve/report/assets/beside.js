"use strict";
// A rollout held beside the one that is read, at a checkpoint of its own; and a rollout's tokens as files.
const LETTER = 9.7;
const LINE = 26;
const COLUMNS_OF_FILE = 84;

// What a held reader is told by its page: all that the page says, but for the checkpoint.
function pageOfHeld(page) {
  const own = Object.create(page);
  own.setCheckpoint = (checkpoint) => {
    own.checkpoint = Math.max(0, Math.min(page.index.checkpoints.length - 1, checkpoint));
    page.held.repaint();
    page.keepAddress();
  };
  own.setShade = (name, value) => page.setShade(name, value);
  own.moved = () => {};
  return own;
}

async function holdBeside(page, number, token, checkpoint) {
  if (!page.held) {
    page.ofHeld = pageOfHeld(page);
    page.held = new Reader(byId("held"), page.ofHeld);
    page.readers.push(page.held);
    bindFiles(page.held);
  }
  page.ofHeld.checkpoint = checkpoint;
  byId("held-box").hidden = false;
  byId("held-box").parentNode.classList.add("two");
  await page.held.open(number, token);
  byId("held-which").textContent = `Held: rollout ${number}`;
  page.keepAddress();
}

function release(page) {
  byId("held-box").hidden = true;
  byId("held-box").parentNode.classList.remove("two");
  page.held.number = null;
  page.keepAddress();
}

function startBeside(page) {
  byId("hold").addEventListener("click", () => page.panel.number !== null && holdBeside(page, page.panel.number, page.panel.token, page.checkpoint));
  byId("release").addEventListener("click", () => release(page));
  bindFiles(page.panel);
}

// Offer the tokens that a reader shows: as they look, and as numbers of all checkpoints.
function bindFiles(reader) {
  const named = (ending) => `rollout-${reader.number}.${ending}`;
  reader.part("save-svg").addEventListener("click", () => reader.rollout && saveText(named("svg"), svgOfTokens(reader), "image/svg+xml"));
  reader.part("save-csv").addEventListener("click", () => reader.rollout && saveText(named("csv"), csvOfTokens(reader)));
}

function csvOfTokens({ page, number, rollout }) {
  const decoded = { [number]: rollout };
  const rows = page.index.checkpoints.flatMap((_, checkpoint) => rollout.tokens.map((_token, position) => tokenRow(page, decoded, number, position, checkpoint)));
  return csvOf([tokenNames(page.index), ...rows]);
}

// The tokens in lines of letters of one width, each on its shade.
function svgOfTokens(reader) {
  const { page, rollout } = reader;
  const values = reader.column(page.checkpoint);
  const probe = element("i");
  document.body.append(probe);
  const colours = Array.from({ length: SHADES + 1 }, (_, level) => {
    probe.className = `q${level}`;
    const style = getComputedStyle(probe);
    return [level ? style.backgroundColor : "none", style.color];
  });
  probe.remove();

  // Where each piece of text lies: tokens and what is between them in turn, broken at the end of a line.
  const marks = [];
  let [column, line] = [0, 0];
  const put = (text, level) => {
    for (const part of text.split(/(\n)/)) {
      if (part === "\n") [column, line] = [0, line + 1];
      const letters = [...part.replace("\n", "")];
      if (!letters.length) continue;
      if (column && column + letters.length > COLUMNS_OF_FILE) [column, line] = [0, line + 1];
      const [fill, ink] = colours[level];
      const [x, y] = [LETTER * column, LINE * line];
      if (level) marks.push(svg("rect", { x, y: y + 3, width: LETTER * letters.length, height: LINE - 5, rx: 2, fill }));
      marks.push(svg("text", { x, y: y + 18, fill: ink, textLength: LETTER * letters.length, "xml:space": "preserve" }, letters.join("")));
      column += letters.length;
    }
  };
  const gaps = shownGaps(rollout);
  rollout.tokens.forEach((token, k) => {
    put(gaps[k], 0);
    put(token || rollout.words[k], values && !rollout.given.has(k) ? shade(values[k], reader.top(), page.scale) : 0);
  });
  const title = `${page.index.checkpoints[page.checkpoint].label} against ${page.index.reference}, rollout ${reader.number}; the darkest: ${nats(reader.top(), 3)} nats and more`;
  const [width, height] = [LETTER * COLUMNS_OF_FILE + 20, LINE * (line + 2) + 20];
  const body = svg("g", { transform: "translate(10 10)" }, ...marks, svg("text", { x: 0, y: LINE * (line + 1) + 18, fill: getComputedStyle(document.body).color, "font-size": 12 }, title));
  const paper = svg("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor });
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "monospace", "font-size": 16 }, paper, body);
  return new XMLSerializer().serializeToString(drawing);
}
