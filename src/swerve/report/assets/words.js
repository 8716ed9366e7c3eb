"use strict";
// Words of the field are explained where they first stand: a pointer, the focus or a tap shows what they mean.
const EXPLAINED = "h1, .lead, .verdict h3, .verdict p, .why, #raster .note, #verdicts > .note";

function explain(word, meaning) {
  const pattern = new RegExp(`(?<![\\p{L}\\d-])${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}s?(?![\\p{L}\\d-])`, "iu");
  for (const place of document.querySelectorAll(EXPLAINED)) {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const found = text.parentElement.closest(".term, .mono, .evidence") ? null : pattern.exec(text.data);
      if (!found) continue;
      const rest = text.splitText(found.index), after = rest.splitText(found[0].length);
      const shown = element("span", { class: "term", tabindex: "0", role: "button", "aria-label": `${found[0]}: ${meaning}` }, found[0], element("span", { class: "meaning", "aria-hidden": "true" }, meaning));
      after.parentNode.replaceChild(shown, rest);
      return;
    }
  }
}

function startWords(words) {
  for (const [word, meaning] of Object.entries(words)) explain(word, meaning);
}

document.addEventListener("keydown", (event) => event.key === "Escape" && event.target.closest(".term") && event.target.blur());
