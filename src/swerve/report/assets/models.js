"use strict";
// What one model would write at a token: rows that are made once and then only change.
class TopTokens {
  constructor(kind) {
    this.title = element("b");
    this.role = element("span");
    this.rows = [];
    this.missing = element("p", { class: "soft" }, "Not kept for this token.");
    this.node = element("div", { class: `model ${kind}` }, element("h4", {}, this.title, " ", this.role), this.missing);
  }

  show(name, role, top, written) {
    this.title.textContent = name;
    this.role.textContent = role;
    this.missing.hidden = top.length > 0;
    while (this.rows.length < top.length) this.addRow();
    this.rows.forEach((row, k) => {
      row.node.hidden = k >= top.length;
      if (row.node.hidden) return;
      const [word, probability] = top[k];
      row.node.classList.toggle("written", word === written);
      row.word.textContent = visible(word);
      row.word.title = visible(word);
      row.meter.style.setProperty("width", `${100 * probability}%`);
      row.share.textContent = chance(probability);
    });
  }

  addRow() {
    const row = { word: element("span", { class: "word mono" }), meter: element("i"), share: element("span", { class: "share num" }) };
    row.node = element("div", { class: "top" }, row.word, element("span", { class: "meter" }, row.meter), row.share);
    this.rows.push(row);
    this.node.append(row.node);
  }
}
