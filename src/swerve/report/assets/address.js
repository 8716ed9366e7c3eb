"use strict";
// What of a page its address carries beside rollout, checkpoint and token: search, filters, sorting, shades, open folds,
// sorted tables and opened rows; and what is copied of it: where one is in words, and the address of that place, which no folder of this machine is in.
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
  const rows = [...openedRows].flatMap(([name, places]) => [...places].map((at) => `${name}.${at}`));
  if (rows.length) view.p = rows.join(",");
  if (sortedBy.size) view.x = [...sortedBy].map(([name, column]) => `${name}.${column}`).join(",");
  return view;
}

// Show a page as an address says it.
async function showView(rollouts, address) {
  const open = (address.get("o") || "").split(",");
  for (const fold of folds()) if (open.includes(foldName(fold))) fold.open = true;
  for (const [, name, sign, column] of (address.get("x") || "").matchAll(/([\w-]+)\.(-?)(\d+)/g)) sorters.get(name)?.(column - 1, sign === "");
  for (const [, name, at] of (address.get("p") || "").matchAll(/([\w-]+)\.(\d+)/g)) rowOpeners.get(name)?.(at);
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

// What is cited needs nothing beside it: which page of which day and version, what it says first, what of it is shown in
// words, and the address of that, on the web or within the file.
function citation(rollouts) {
  const name = document.querySelector("header .name").textContent.trim(), first = document.querySelector("h1").cloneNode(true);
  for (const meaning of first.querySelectorAll(".meaning")) meaning.remove();
  const parts = [`swerve ${document.body.dataset.kind} “${name}” (${document.querySelector("meta[name=generator]").content}): ${first.textContent.trim()}`];
  const address = new URLSearchParams(window.location.hash.slice(1)), number = Number.parseInt(address.get("r"), 10);
  if (rollouts && rollouts.index.rollouts[number]) {
    const { active } = rollouts, token = active.rollout && active.rollout.tokens[active.token];
    parts.push(`Rollout ${number} (${rollouts.index.rollouts[number].problem}), checkpoint ${address.get("c")}, token ${address.get("t")}${token ? ` “${visible(token)}”` : ""}.`);
    const set = Object.values(FILTERS).map((id) => byId(id)).filter(({ value }) => value !== "");
    if (set.length) parts.push(`Listed are those with ${set.map((one) => `“${one.selectedOptions ? one.selectedOptions[0].textContent.replace(/ \([\d,]+\)$/, "") : one.value}”`).join(", ")}.`);
  }
  const { protocol, pathname, hash, href } = window.location;
  return `${parts.join(" ")} ${protocol === "file:" ? decodeURIComponent(pathname.split("/").at(-1)) + hash : href}`;
}
