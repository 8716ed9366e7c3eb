"use strict";
// Elements are made of nodes and text only: a run's text is never parsed as markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : String(value));
  }
  return fill(node, children);
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, String(value));
  return fill(node, children);
}

function byId(id) {
  return document.getElementById(id);
}

// A short text with what a reader could not see or be misled by: white space, and characters that turn its direction.
function visible(text) {
  const short = text.length > 60 ? `${[...text].slice(0, 60).join("")}…` : text;
  const seen = short.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ | $/g, "␣");
  return seen.replace(/[\p{Cc}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}/gu, (character) => `[U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`) || "(empty)";
}

// The same inside a sentence, whose direction it must not turn; most words of a vocabulary begin with a space.
function quoted(text) {
  return `“\u2068${visible(text.replace(/^ (?=\S)/, ""))}\u2069”`;
}

// A divergence or an entropy; those of cells are known to 0.4%, so a third digit would say nothing.
function nats(value, digits = 2) {
  if (!Number.isFinite(value)) return "not finite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10 ** digits) return value.toFixed(0).replace("-", "−");
  return (size < 1e-3 ? value.toExponential(digits - 1) : value.toPrecision(digits)).replaceAll("-", "−");
}

// A probability as a reader takes it in: a decimal only near 0 and 1.
function chance(value) {
  if (value < 0.001) return "<0.1%";
  return value > 0.9995 && value < 1 ? ">99.9%" : `${(100 * value).toFixed(value >= 0.1 && value < 0.99 ? 0 : 1)}%`;
}

// What Python wrote for the scripts: of a report `words`, `rollouts` (null without any) and `opened`, which has the rest
// compressed; of a page of `swerve view` its `kind` and `state`.
const pageData = JSON.parse(byId("data").textContent);
