"use strict";
// What of a page its address carries beside rollout, checkpoint and token: search, filters, sorting, shades and open folds;
// and what is copied of it: where one is in words, and the address of that place, which no folder of this machine is in.
const FILTERS = { q: "find", fp: "population", fo: "outcome", fk: "kind", fc: "category" };

function folds() {
  return [...document.querySelectorAll("details")].filter((fold) => !fold.closest(".reader"));
}

// Folds without a name of their own are called by their place.
function foldName(fold) {
  return fold.id || `${fold.classList.contains("evidence") ? "rows" : "fold"}-${folds().indexOf(fold)}`;
}

// What differs from the page as it opens.
function viewOf(rollouts) {
  const view = {}, open = folds().filter((fold) => fold.open).map(foldName);
  if (rollouts && rollouts.list) {
    const { list, index } = rollouts, { sorted, direction, first } = list.items;
    if (list.isOfTokens()) view.w = "tokens";
    for (const [key, id] of Object.entries(FILTERS)) if (byId(id).value !== "") view[key] = byId(id).value;
    if (sorted.name !== first.name || direction !== first.starts) view.s = `${direction < 0 ? "-" : ""}${sorted.name}`;
    if (rollouts.divergence !== index.divergence) view.d = rollouts.divergence;
    if (rollouts.scale !== "sqrt") view.k = rollouts.scale;
  }
  if (open.length) view.o = open.join(",");
  return view;
}

// Show a page as an address says it.
async function showView(rollouts, address) {
  const open = (address.get("o") || "").split(",");
  for (const fold of folds()) if (open.includes(foldName(fold))) fold.open = true;
  if (!rollouts) return;
  const { list, index } = rollouts;
  if (index.divergences.some(([key]) => key === address.get("d"))) rollouts.setShade("divergence", address.get("d"));
  if (address.get("k") === "log") rollouts.setShade("scale", "log");
  if (address.get("w") === "tokens") {
    byId("what").value = "tokens";
    await list.choose("tokens");
  }
  for (const [key, id] of Object.entries(FILTERS)) if (address.has(key)) byId(id).value = address.get(key);
  const name = (address.get("s") || "").replace(/^-/, ""), column = list.items.columns.find((one) => one.name === name);
  if (column) Object.assign(list.items, { sorted: column, direction: address.get("s").startsWith("-") ? -1 : 1 });
  if (["w", "s", ...Object.keys(FILTERS)].some((key) => address.has(key))) await list.search();
}

// Show a verdict or a fold that an address names alone, such as #accuracy.
function showPlace(hash) {
  const place = /^#[\w-]+$/.test(hash) && document.getElementById(hash.slice(1));
  if (!place) return;
  for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  place.scrollIntoView({ block: "start" });
}

// Where one is in words, with the address of it on this page, or on the web where the page is there.
function citation(rollouts) {
  const name = document.querySelector("header .name").textContent.trim();
  const address = new URLSearchParams(window.location.hash.slice(1)), number = Number.parseInt(address.get("r"), 10);
  const parts = [`swerve report “${name}”`];
  if (rollouts && rollouts.index.rollouts[number]) {
    const { active } = rollouts, token = active.rollout && active.rollout.tokens[active.token];
    parts.push(`rollout ${number} (${rollouts.index.rollouts[number].problem})`, `checkpoint ${address.get("c")}`);
    parts.push(`token ${address.get("t")}${token ? ` “${visible(token)}”` : ""}`);
  }
  const place = window.location.protocol === "file:" ? window.location.hash : window.location.href;
  return `${parts.join(", ")}${place ? `: ${place}` : ""}`;
}
