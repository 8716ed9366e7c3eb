"use strict";
const DASHES = [[], [7, 4], [2, 3]];

function cssVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function readable(value, unit) {
  if (unit === "share") return percent(value);
  if (unit === "reward") return value.toFixed(3);
  return unit === "tokens" ? value.toFixed(2) : nats(value);
}

class CurveChart {
  constructor(root, chart) {
    this.root = root;
    this.chart = chart;
    this.plot = null;
    this.readout = root.querySelector(".readout");
    this.holder = root.querySelector(".plot");
    this.draw();
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(this.holder);
    darkMode.addEventListener("change", () => this.draw());
  }

  size() {
    return { width: Math.max(240, this.holder.clientWidth), height: 224 };
  }

  draw() {
    if (this.plot) this.plot.destroy();
    const { chart } = this;
    const columns = [chart.steps];
    const series = [{}];
    const bands = [];
    chart.curves.forEach((curve, i) => {
      const colour = cssVariable(`--curve-${i}`);
      const at = series.length;
      const edge = { stroke: "transparent", width: 0, points: { show: false } };
      series.push({ stroke: colour, width: 2, dash: DASHES[i], points: { show: true, size: 6, fill: colour, width: 0 } }, edge, edge);
      bands.push({ series: [at + 2, at + 1], fill: `color-mix(in srgb, ${colour} 16%, transparent)` });
      columns.push(curve.mean, curve.low, curve.high);
    });
    this.plot = new uPlot({
      ...this.size(),
      series,
      bands,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 9 } },
      scales: { x: { time: false, range: (_, low, high) => CurveChart.pad(low, high) }, y: { range: (_, low, high) => this.rangeY(low, high) } },
      axes: [this.axis({ label: chart.x_title, labelSize: 18, size: 26 }), this.axis({ size: 48, values: (_, ticks) => ticks.map((tick) => this.tick(tick)) })],
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)], drawAxes: [(plot) => this.drawStages(plot)] },
    }, columns, this.holder);
    this.read(null);
  }

  axis(options) {
    const font = "11.5px system-ui, -apple-system, 'Segoe UI', sans-serif";
    const line = { stroke: cssVariable("--line"), width: 1 };
    return { stroke: cssVariable("--faint"), font, labelFont: font, grid: line, ticks: { ...line, size: 4 }, gap: 4, ...options };
  }

  tick(value) {
    return this.chart.unit === "share" ? `${Math.round(100 * value)}%` : String(Number(value.toPrecision(3)));
  }

  static pad(low, high) {
    const room = 0.05 * (high - low) || 1;
    return [low - room, high + room];
  }

  rangeY(low, high) {
    if (this.chart.unit === "share") return [0, 1.02];
    if (this.chart.unit === "nats") return [0, high > 0 ? 1.08 * high : 1];
    const room = Math.max(0.12 * (high - low), 0.02 * Math.abs(high)) || 1;
    return [low - room, high + room];
  }

  drawStages(plot) {
    const { chart } = this;
    const context = plot.ctx;
    const { left, top, width, height } = plot.bbox;
    const ratio = window.devicePixelRatio || 1;
    context.save();
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.fillStyle = cssVariable("--faint");
    context.strokeStyle = cssVariable("--faint");
    context.lineWidth = ratio;
    context.setLineDash([2 * ratio, 4 * ratio]);
    const place = (step) => Math.min(Math.max(plot.valToPos(step, "x", true), left), left + width);
    for (const stage of chart.stages) {
      const start = place(stage.start);
      const end = place(stage.end);
      // The end of the last checkpoint is the end of the run: no line.
      if (end > left && stage.end < chart.steps[chart.steps.length - 1]) {
        context.beginPath();
        context.moveTo(end, top);
        context.lineTo(end, top + height);
        context.stroke();
      }
      if (end - start > context.measureText(stage.name).width + 8 * ratio) context.fillText(stage.name, start + 5 * ratio, top + 11 * ratio);
    }
    context.restore();
  }

  read(index) {
    const { chart } = this;
    const at = index === null || index === undefined ? chart.labels.length - 1 : index;
    const curves = chart.curves.map((curve, i) => {
      const line = svg("svg", { width: 22, height: 8 }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2.5, "stroke-dasharray": DASHES[i].join(" ") || "none" }));
      line.style.setProperty("stroke", `var(--curve-${i})`);
      const mean = curve.mean[at];
      const value = mean === null ? "not measured" : readable(mean, chart.unit);
      const bounds = mean === null || !chart.has_intervals ? "" : ` (${readable(curve.low[at], chart.unit)} to ${readable(curve.high[at], chart.unit)})`;
      return element("span", { class: "curve" }, line, `${curve.name} `, element("b", {}, value), bounds);
    });
    fill(this.readout, [
      element("div", { class: "at" }, `${chart.labels[at]}, ${chart.x_title} ${chart.steps[at]}`),
      element("div", { class: "curves" }, ...curves),
    ]);
  }
}
