"use strict";
// Single-hue ramps whose lightness is monotonic, so that they survive any colour vision and greyscale printing.
const RAMPS = {
  light: [[255, 255, 255], [254, 240, 214], [253, 216, 160], [251, 178, 98], [236, 124, 44], [199, 70, 14], [124, 32, 6]],
  dark: [[18, 21, 26], [54, 36, 28], [96, 52, 26], [148, 76, 24], [208, 116, 34], [246, 172, 84], [255, 232, 184]],
};
const LOG_DECADES = 4;
const darkMode = window.matchMedia("(prefers-color-scheme: dark)");

function rampColour(position) {
  const stops = darkMode.matches ? RAMPS.dark : RAMPS.light;
  const place = Math.min(Math.max(position, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  return stops[low].map((channel, i) => Math.round(channel + (stops[low + 1][i] - channel) * (place - low)));
}

function css(colour) {
  return `rgb(${colour.join(",")})`;
}

function luminance(colour) {
  const [r, g, b] = colour.map((channel) => {
    const c = channel / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Whichever of dark and light has the greater contrast on the background.
function inkOn(colour) {
  const back = luminance(colour) + 0.05;
  if (back / 0.059 > 1.05 / back) return darkMode.matches ? "#16181d" : "var(--ink)";
  return darkMode.matches ? "var(--ink)" : "#ffffff";
}

// Where a divergence lies on the colour scale, 0 to 1. The top is the same for every rollout and checkpoint.
function scalePosition(value, top, scale) {
  // Null stands for a divergence that is not finite.
  if (value === null) return 1;
  if (value <= 0) return 0;
  if (scale === "log") return Math.max(0, 1 + Math.log10(Math.min(value, top) / top) / LOG_DECADES);
  return Math.sqrt(Math.min(value, top) / top);
}

// Where the divergence is highest, spike or not: what the summary counts and the causal test uses.
function topPosition(entry, divergence) {
  if (!entry) return null;
  const values = entry[divergence].map((value) => (value === null ? Infinity : value));
  return values.length ? values.indexOf(values.reduce((a, b) => Math.max(a, b))) : null;
}

function scaleValue(position, top, scale) {
  return scale === "log" ? top * 10 ** ((position - 1) * LOG_DECADES) : top * position * position;
}
