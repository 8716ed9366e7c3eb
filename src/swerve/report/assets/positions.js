"use strict";
// Divergence against position: bars for the chosen checkpoint, and below them one strip for every checkpoint.
class PositionChart {
  constructor(root, data, { onPosition, onCheckpoint }) {
    this.root = root;
    this.data = data;
    this.onPosition = onPosition;
    this.onCheckpoint = onCheckpoint;
    this.state = null;
    this.width = 0;
    new ResizeObserver(() => {
      if (this.state && root.clientWidth !== this.width) this.draw(this.state);
    }).observe(root);
  }

  draw(state) {
    this.state = state;
    this.width = this.root.clientWidth;
    const { rollout } = state;
    const names = this.data.checkpoints;
    const left = 58;
    const bars = { top: 22, height: 84 };
    const strips = { top: bars.top + bars.height + 10, height: 12 };
    const plotWidth = Math.max(60, this.width - left - 4);
    const step = plotWidth / Math.max(1, rollout.tokens.length);
    const height = strips.top + strips.height * names.length + 22;
    this.layout = { left, step, bars, strips, height, plotWidth };
    const frame = svg("rect", { class: "frame", x: left - 0.5, y: strips.top - 0.5, width: plotWidth + 1, height: strips.height * names.length + 1, rx: 2 });
    const chart = svg("svg", { width: this.width, height, role: "img", "aria-label": "Divergence of each token at the chosen checkpoint, and at every checkpoint" });
    chart.append(frame, ...this.grid(state), ...this.bars(state), ...this.strips(state), ...this.marks(state), ...this.ticks(state));
    this.cursor = svg("rect", { class: "cursor", x: -1000, y: bars.top - 2, width: Math.max(step, 3), height: height - bars.top - 18, rx: 1 });
    chart.append(this.cursor);
    chart.addEventListener("pointermove", (event) => this.point(event));
    chart.addEventListener("pointerleave", () => this.onPosition(null));
    chart.addEventListener("click", (event) => this.choose(event));
    fill(this.root, [chart]);
  }

  light(position) {
    if (!this.cursor) return;
    const { left, step } = this.layout;
    this.cursor.setAttribute("x", position === null ? -1000 : left + position * step - (step < 3 ? 1.5 - step / 2 : 0));
  }

  place(event) {
    const box = this.root.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  point(event) {
    const { left, step } = this.layout;
    const position = Math.floor((this.place(event).x - left) / step);
    this.onPosition(position >= 0 && position < this.state.rollout.tokens.length ? position : null);
  }

  choose(event) {
    const { strips } = this.layout;
    const row = Math.floor((this.place(event).y - strips.top) / strips.height);
    if (row >= 0 && row < this.data.checkpoints.length) this.onCheckpoint(row);
  }

  grid({ divergence, scale }) {
    const { left, bars, plotWidth } = this.layout;
    const top = this.data.max[divergence];
    return [0, 0.5, 1].flatMap((place) => {
      const y = bars.top + bars.height * (1 - place);
      const value = scale === "log" && place === 0 ? 0 : scaleValue(place, top, scale);
      return [
        svg("line", { class: "grid", x1: left, x2: left + plotWidth, y1: y, y2: y }),
        svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, value === 0 ? "0" : value < 0.01 ? value.toExponential(0).replace("-", "−") : value.toPrecision(2)),
      ];
    });
  }

  bars({ rollout, checkpoint, divergence, scale }) {
    const { left, step, bars } = this.layout;
    const entry = rollout.by_checkpoint[checkpoint];
    if (!entry) return [svg("text", { x: left + 8, y: bars.top + bars.height / 2 }, "not measured at this checkpoint")];
    return entry[divergence].map((value, i) => {
      const place = scalePosition(value, this.data.max[divergence], scale);
      const height = Math.max(1, place * bars.height);
      // Bars stay visible on the paper however small the value.
      const colour = css(rampColour(Math.max(place, 0.35)));
      return svg("rect", { x: left + i * step + 0.5, y: bars.top + bars.height - height, width: Math.max(1, step - 1), height, fill: colour });
    });
  }

  strips({ rollout, checkpoint, divergence, scale }) {
    const { left, step, strips, plotWidth } = this.layout;
    const top = this.data.max[divergence];
    return this.data.checkpoints.flatMap((label, row) => {
      const y = strips.top + row * strips.height;
      const entry = rollout.by_checkpoint[row];
      const cells = entry ? entry[divergence].map((value, i) => svg("rect", { x: left + i * step, y: y + 1, width: step + 0.3, height: strips.height - 2, fill: css(rampColour(scalePosition(value, top, scale))) })) : [];
      const isCurrent = row === checkpoint;
      const name = svg("text", { class: isCurrent ? "current" : "", x: left - 8, y: y + strips.height - 2.5, "text-anchor": "end" }, label.length > 9 ? `${label.slice(0, 8)}…` : label);
      const frame = isCurrent ? [svg("rect", { class: "current-row", x: left - 0.5, y: y + 0.5, width: plotWidth + 1, height: strips.height - 1, rx: 2 })] : [];
      return [svg("rect", { class: "row-hit", x: 0, y, width: left + plotWidth, height: strips.height }), ...cells, name, ...frame];
    });
  }

  marks({ rollout, checkpoint, divergence }) {
    const { left, step } = this.layout;
    const middle = (position) => left + (position + 0.5) * step;
    const wrong = rollout.wrong.map(([position]) => {
      const x = middle(position);
      return position === rollout.first_wrong
        ? svg("path", { class: "flag", d: `M${x - 4.5} 1h9l-4.5 7z` })
        : svg("path", { class: "wave", d: `M${x - 4} 5q2 -4 4 0t4 0` });
    });
    const entry = rollout.by_checkpoint[checkpoint];
    const top = topPosition(entry, divergence);
    const spikes = (entry ? entry.spikes[divergence] : []).filter((position) => position !== top).map((position) => svg("circle", { class: "spike-dot", cx: middle(position), cy: 15, r: 2.2 }));
    const highest = top === null ? [] : [svg("circle", { class: "spike-dot", cx: middle(top), cy: 15, r: 4 })];
    return [...wrong, ...spikes, ...highest];
  }

  ticks({ rollout }) {
    const { left, step, height } = this.layout;
    const every = [1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000].find((size) => size * step > 44) || 5000;
    const ticks = [];
    for (let i = 0; i < rollout.tokens.length; i += every) ticks.push(svg("text", { x: left + (i + 0.5) * step, y: height - 6, "text-anchor": "middle" }, i));
    return ticks;
  }
}
