"use strict";
// The rollouts of a page: what its two readers share, the address that leads back to what is shown, and the keys.
const SECONDS_A_CHECKPOINT = 0.7;

class Rollouts {
  constructor(index) {
    this.index = index;
    this.checkpoint = index.checkpoints.length - 1;
    this.setCheckpointOf(index.final);
    this.divergence = index.divergence;
    this.scale = "sqrt";
    this.timer = null;
    this.isArriving = false;
    // The list's rollout, shown or on its way.
    this.chosen = null;
    this.hero = new Reader(byId("hero"), this);
    this.panel = new Reader(byId("panel"), this);
    this.readers = [this.hero, this.panel];
    this.active = this.hero;
  }

  // The first screen comes first; then the rest of the page, and the list, whose reader opens what the address says, else
  // the same rollout.
  async start() {
    this.setCheckpointOf(this.address().get("c"));
    await this.hero.open(this.index.hero, this.index.heroToken);
    performance.mark("first");
    await drawn();
    await startPage();
    this.list = new RolloutList(this);
    this.bind();
    startRaster(this);
    startBeside(this);
    if (!(await this.follow())) await this.show(this.index.hero, this.index.heroToken);
    performance.mark("loaded");
  }

  bind() {
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("next").addEventListener("click", () => this.step(1));
    byId("close").addEventListener("click", () => this.close());
    window.addEventListener("hashchange", (event) => this.follow(new URL(event.newURL).hash));
    document.addEventListener("keydown", (event) => this.press(event));
  }

  // Shared by the readers

  setCheckpoint(checkpoint, isPlaying = false) {
    if (!isPlaying) this.stop();
    this.checkpoint = Math.max(0, Math.min(this.index.checkpoints.length - 1, checkpoint));
    for (const reader of this.readers) reader.repaint();
    if (this.list) this.list.showCheckpoint();
    this.keepAddress();
  }

  setCheckpointOf(label) {
    const place = this.index.checkpoints.findIndex((checkpoint) => checkpoint.label === label);
    if (place >= 0) this.checkpoint = place;
  }

  // `name` is "divergence" or "scale".
  setShade(name, value) {
    this[name] = value;
    for (const reader of this.readers) {
      reader.repaint();
      if (reader.isWhole && reader.rollout) reader.map.paint();
    }
    this.list.showCheckpoint();
    this.keepAddress();
  }

  play() {
    if (this.timer !== null) return this.stop();
    const last = this.index.checkpoints.length - 1;
    this.timer = window.setInterval(() => {
      if (this.checkpoint === last) this.stop();
      else this.setCheckpoint(this.checkpoint + 1, true);
    }, 1000 * SECONDS_A_CHECKPOINT);
    return this.setCheckpoint(this.checkpoint === last ? 0 : this.checkpoint + 1, true);
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = null;
    for (const reader of this.readers) reader.film.showPlaying();
  }

  moved(reader) {
    this.active = reader;
    if (reader === this.panel && this.list.isOfTokens()) this.list.reveal();
    this.keepAddress();
  }

  // The reader that keys speak to: the last one used, or the one on the screen where that one is not.
  current() {
    const isOnScreen = ({ root }) => {
      const { top, bottom, height } = root.getBoundingClientRect();
      return height > 0 && bottom > 0 && top < window.innerHeight;
    };
    if (isOnScreen(this.active)) return this.active;
    return this.readers.find(isOnScreen) || null;
  }

  // The list's reader

  async open(number, token) {
    if (number === null || number === undefined) return;
    this.active = this.panel;
    byId("dock").classList.add("open");
    await this.show(number, token);
    this.keepAddress();
  }

  async show(number, token) {
    this.chosen = number;
    this.list.reveal();
    if (!(await this.panel.open(number, token))) return;
    byId("which").textContent = `Rollout ${number}`;
    if (this.list.isOfTokens()) this.list.reveal();
  }

  step(distance) {
    byId("list").scrollIntoView({ block: "nearest" });
    return this.list.openItem(this.list.neighbour(distance));
  }

  close() {
    if (byId("dock").contains(document.activeElement)) byId("list").focus({ preventScroll: true });
    byId("dock").classList.remove("open");
  }

  // The address: #r=12&c=rl-80&t=37, and &h=3&hc=rl-1&ht=4 of a rollout that is held beside it

  address(hash = window.location.hash) {
    return new URLSearchParams(hash.slice(1));
  }

  // Written a moment after a change: browsers allow few changes of the address in a short time.
  keepAddress() {
    window.clearTimeout(this.writing);
    if (!this.isArriving) this.writing = window.setTimeout(() => this.writeAddress(), 150);
  }

  writeAddress() {
    window.clearTimeout(this.writing);
    const { number, token } = this.active;
    if (number === null) return;
    const { checkpoints } = this.index;
    const address = new URLSearchParams({ r: number, c: checkpoints[this.checkpoint].label, t: token, ...viewOf(this) });
    if (this.held && this.held.number !== null) {
      const { number: held, token: at } = this.held;
      for (const [key, value] of Object.entries({ h: held, hc: checkpoints[this.ofHeld.checkpoint].label, ht: at })) address.set(key, value);
    }
    window.history.replaceState(null, "", `#${address}`);
  }

  // Open what the address says, if it says a rollout of this page.
  async follow(hash) {
    window.clearTimeout(this.writing);
    const address = this.address(hash);
    const number = Number.parseInt(address.get("r"), 10);
    if (!this.index.rollouts[number]) return false;
    this.stop();
    this.isArriving = true;
    await showView(this, address);
    this.isArriving = false;
    this.setCheckpointOf(address.get("c"));
    this.hero.repaint();
    const token = Number.parseInt(address.get("t"), 10);
    await this.open(number, Number.isNaN(token) ? undefined : token);
    const held = Number.parseInt(address.get("h"), 10);
    const at = this.index.checkpoints.findIndex(({ label }) => label === address.get("hc"));
    if (this.index.rollouts[held] && at >= 0) await holdBeside(this, held, Number.parseInt(address.get("ht"), 10) || 0, at);
    byId("dock").parentNode.scrollIntoView({ block: "start" });
    return true;
  }

  // Keys

  press(event) {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (target.closest("input:not([type=range]), select, textarea") && event.key !== "Escape") return;
    const reader = this.current();
    const isFree = !target.closest("input, .scroll");
    const isPressed = target.closest("button, summary, a");
    const keys = {
      j: () => this.step(1),
      k: () => this.step(-1),
      "/": () => byId("find").focus(),
      Escape: () => (target === byId("find") ? target.blur() : this.close()),
      ...(reader && {
        n: () => reader.spike(1),
        p: () => reader.spike(-1),
        "[": () => this.setCheckpoint(this.checkpoint - 1),
        "]": () => this.setCheckpoint(this.checkpoint + 1),
      }),
      ...(reader && isFree && !isPressed && { " ": () => this.play() }),
      ...(reader && isFree && {
        ArrowLeft: () => reader.pin(reader.token - 1),
        ArrowRight: () => reader.pin(reader.token + 1),
      }),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
}

// A promise of the time after the next frame, which a page in the background does not have.
function drawn() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => window.setTimeout(resolve));
    window.setTimeout(resolve, 100);
  });
}

// All that a page offers beside its rollouts; what is below the first screen is laid out from now on.
async function startPage() {
  document.documentElement.classList.add("started");
  startTables();
  Object.assign(pageData, await openedData());
  startSaving(pageData.csv);
  startEvidence(pageData.evidence);
  startWords(pageData.words);
  for (const fold of folds()) fold.addEventListener("toggle", () => document.dispatchEvent(new Event("seen-anew")));
}

// Whether a text could be copied: where there is no clipboard, by way of a field.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { class: "unseen", readonly: true }, text);
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    return isCopied;
  }
}

// Write what is open into the address of a page without rollouts; their own does it with what they show.
function writeAddress(rollouts) {
  if (rollouts) return rollouts.writeAddress();
  const view = viewOf(null);
  return window.history.replaceState(null, "", Object.keys(view).length ? `#${new URLSearchParams(view)}` : window.location.pathname);
}

// Where one is and how to come back, and a word on the button about what came of it.
async function copyAddress(button, rollouts) {
  writeAddress(rollouts);
  const copied = rollouts && rollouts.active.number !== null ? `Copied: rollout ${rollouts.active.number}` : "Copied";
  button.textContent = (await copyText(citation(rollouts))) ? copied : "Copy it from the address bar";
  window.setTimeout(() => {
    button.textContent = "Copy link";
  }, 1800);
}

const rollouts = pageData.rollouts ? new Rollouts(pageData.rollouts) : null;
const arrival = window.location.hash;
if (rollouts) rollouts.start().then(() => showPlace(arrival));
else {
  startPage()
    .then(() => showView(null, new URLSearchParams(arrival.slice(1))))
    .then(() => showPlace(arrival));
}
window.addEventListener("hashchange", () => showPlace(window.location.hash));
document.addEventListener("seen-anew", () => rollouts && rollouts.list && rollouts.keepAddress());
byId("copy").addEventListener("click", (event) => copyAddress(event.currentTarget, rollouts));
