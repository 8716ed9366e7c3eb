"use strict";
const SAVED_WIDTH = 640;

// The theme follows the system until the reader chooses.
function startTheme() {
  const button = byId("theme");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  name();
}

// Offer a file for saving.
function saveFile(name, address) {
  element("a", { href: address, download: name }).click();
}

// Offer a text for saving, of any size.
function saveText(name, text, type = "text/csv") {
  const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  saveFile(name, address);
  window.setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// A plot as the address of a file of its own: its styles are written into it, and its width becomes a number.
function plotAddress(plot) {
  const copy = plot.cloneNode(true);
  const originals = [plot, ...plot.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
    const style = getComputedStyle(originals[index]);
    for (const key of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"]) {
      node.style.setProperty(key, style.getPropertyValue(key));
    }
    if (node.classList.contains("line")) node.style.setProperty("vector-effect", "non-scaling-stroke");
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", SAVED_WIDTH);
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
}

// Save a plot as PNG, three times as fine as it is shown.
function savePng(name, plot) {
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = element("canvas");
    canvas.width = 3 * SAVED_WIDTH;
    canvas.height = 3 * plot.height.baseVal.value;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    saveFile(`${name}.png`, canvas.toDataURL("image/png"));
  });
  image.src = plotAddress(plot);
}

// Beside every plot and table: save it as SVG, PNG and CSV.
function startSaving(csv) {
  for (const rows of document.querySelectorAll(".rows")) {
    const id = rows.dataset.id, plots = [...rows.querySelectorAll(".plot")], bar = element("div", { class: "save" });
    const named = (index) => (plots.length > 1 ? `${id}-${index + 1}` : id);
    const offer = (text, save) => {
      const button = element("button", { type: "button" }, text);
      button.addEventListener("click", save);
      bar.append(button);
    };
    if (plots.length) {
      offer("SVG", () => plots.forEach((plot, index) => saveFile(`${named(index)}.svg`, plotAddress(plot))));
      offer("PNG", () => plots.forEach((plot, index) => savePng(named(index), plot)));
    }
    // Numbers that are neither drawn nor listed here stand in the rows of the sentence.
    if (csv[id] && rows.querySelector(".plot, table")) offer("CSV", () => saveFile(`${id}.csv`, `data:text/csv;charset=utf-8,${encodeURIComponent(csv[id])}`));
    rows.append(bar);
  }
}

startTheme();
