"use strict";
// The picture of all wrong answers: a click on a cell opens its rollout at its token.

// The rollout and the token under a point of a panel, both from 0 to 1; null beside a text.
function cellAt({ rows, columns, align, before }, rollouts, x, y) {
  const number = rows[Math.min(rows.length - 1, Math.floor(y * rows.length))];
  const { length, wrong } = rollouts[number];
  const column = Math.min(columns - 1, Math.floor(x * columns));
  if (align === "share") return { number, token: Math.floor((column * length) / columns) };
  const token = column - before + (align === "wrong" ? wrong : 0);
  return token >= 0 && token < length ? { number, token } : null;
}

function startRaster(page) {
  const { raster, rollouts: entries } = page.index;
  const section = byId("raster");
  if (!raster || !section) return;
  const cellOf = ({ target, clientX, clientY }) => {
    const { left, top, width, height } = target.getBoundingClientRect();
    return cellAt(raster, entries, (clientX - left) / width, (clientY - top) / height);
  };
  [...section.querySelectorAll("img")].forEach((image, panel) => {
    image.addEventListener("pointermove", (event) => {
      const cell = cellOf(event);
      const entry = cell && entries[cell.number];
      image.title = cell ? `Rollout ${cell.number}, token ${cell.token}: ${entry.question || entry.problem}` : "";
    });
    image.addEventListener("click", (event) => {
      const cell = cellOf(event);
      if (!cell) return;
      if (raster.labels[panel] !== undefined) page.setCheckpointOf(raster.labels[panel]);
      page.hero.repaint();
      page.open(cell.number, cell.token);
      byId("dock").parentNode.scrollIntoView({ block: "start" });
    });
  });
}
