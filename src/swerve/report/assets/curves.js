"use strict";
// Points that are close together would hide the line.
const MANY_STEPS = 60;
// Between two steps there is nothing.
const STEP_TICKS = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [1, 2], [12, 4], [5, 2, 1, 2]];

function cssVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function readable(value, unit) {
  if (unit === "share" || unit === "rate") return percent(value);
  if (unit === "reward" || unit === "loss") return value.toFixed(3);
  return unit === "nats" ? nats(value) : value.toFixed(2);
}

class CurveChart {
  constructor(root, chart) {
    this.root = root;
    this.chart = chart;
    this.isDose = chart.x_unit === "share";
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
      series.push({ stroke: colour, width: 2, dash: DASHES[i], spanGaps: this.isDose, points: { show: true, size: chart.steps.length > MANY_STEPS ? 2 : 6, fill: colour, width: 0 } }, edge, edge);
      // Curves that are measured at different places have bars, for bands over one another would be mud.
      if (!this.isDose) bands.push({ series: [at + 2, at + 1], fill: `color-mix(in srgb, ${colour} 16%, transparent)` });
      columns.push(curve.mean, curve.low ?? curve.mean, curve.high ?? curve.mean);
    });
    this.plot = new uPlot({
      ...this.size(),
      series,
      bands,
      legend: { show: false },
      // Beside the plot stand the names of its levels.
      padding: [null, this.chart.levels.length ? 84 : null, null, null],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 9 } },
      scales: { x: { time: false, range: (_, low, high) => CurveChart.pad(low, high) }, y: { range: (_, low, high) => this.rangeY(low, high) } },
      axes: [this.axis({ label: chart.x_title, labelSize: 18, size: 26, ...(this.isDose ? {} : { incrs: STEP_TICKS }), values: this.isDose ? (_, ticks) => ticks.map((tick) => `${Number((100 * tick).toPrecision(3))}%`) : null }), this.axis({ size: 48, values: (_, ticks) => ticks.map((tick) => this.tick(tick)) })],
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)], drawAxes: [(plot) => this.drawStages(plot), (plot) => this.drawLevels(plot)], draw: [(plot) => this.drawBars(plot)] },
    }, columns, this.holder);
    this.read(null);
  }

  axis(options) {
    const font = "11.5px system-ui, -apple-system, 'Segoe UI', sans-serif";
    const line = { stroke: cssVariable("--line"), width: 1 };
    return { stroke: cssVariable("--faint"), font, labelFont: font, grid: line, ticks: { ...line, size: 4 }, gap: 4, ...options };
  }

  tick(value) {
    const { unit } = this.chart;
    return unit === "share" || unit === "rate" ? `${Number((100 * value).toPrecision(3))}%` : String(Number(value.toPrecision(3)));
  }

  static pad(low, high) {
    const room = 0.05 * (high - low) || 1;
    return [low - room, high + room];
  }

  rangeY(low, high) {
    if (this.chart.unit === "share") return [0, 1.02];
    if (["nats", "rate", "per_1000_words"].includes(this.chart.unit)) return [0, high > 0 ? 1.08 * high : 1];
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

  // The two ends that the curves run between, each with its name.
  drawLevels(plot) {
    const context = plot.ctx;
    const { left, width } = plot.bbox;
    const ratio = window.devicePixelRatio || 1;
    context.save();
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textAlign = "left";
    context.strokeStyle = context.fillStyle = cssVariable("--faint");
    context.lineWidth = ratio;
    for (const level of this.chart.levels) {
      const y = plot.valToPos(level.mean, "y", true);
      context.setLineDash([2 * ratio, 3 * ratio]);
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(left + width, y);
      context.stroke();
      context.fillText(level.name.length > 14 ? `${level.name.slice(0, 13)}…` : level.name, left + width + 5 * ratio, y + 4 * ratio);
    }
    context.restore();
  }

  drawBars(plot) {
    if (!this.isDose) return;
    const context = plot.ctx;
    const ratio = window.devicePixelRatio || 1;
    context.save();
    context.lineWidth = 1.2 * ratio;
    context.globalAlpha = 0.55;
    this.chart.curves.forEach((curve, i) => {
      context.strokeStyle = cssVariable(`--curve-${i}`);
      curve.mean.forEach((mean, at) => {
        if (mean === null) return;
        const x = plot.valToPos(this.chart.steps[at], "x", true);
        context.beginPath();
        context.moveTo(x, plot.valToPos(curve.low[at], "y", true));
        context.lineTo(x, plot.valToPos(curve.high[at], "y", true));
        context.stroke();
      });
    });
    context.restore();
  }

  // The measured point of a curve that lies nearest to a place on the x axis.
  nearest(curve, at) {
    if (!this.isDose) return at;
    const { steps } = this.chart;
    let best = at;
    let distance = Infinity;
    curve.mean.forEach((mean, i) => {
      if (mean !== null && Math.abs(steps[i] - steps[at]) < distance) {
        best = i;
        distance = Math.abs(steps[i] - steps[at]);
      }
    });
    return best;
  }

  read(index) {
    const { chart } = this;
    const at = index === null || index === undefined ? chart.labels.length - 1 : index;
    const curves = chart.curves.map((curve, i) => {
      const own = this.nearest(curve, at);
      const line = svg("svg", { width: 22, height: 8 }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2.5, "stroke-dasharray": DASHES[i].join(" ") || "none" }));
      line.style.setProperty("stroke", `var(--curve-${i})`);
      const mean = curve.mean[own];
      const value = mean === null ? "not measured" : readable(mean, chart.unit);
      const bounds = mean === null || !chart.has_intervals ? "" : ` (${readable(curve.low[own], chart.unit)} to ${readable(curve.high[own], chart.unit)})`;
      const place = this.isDose ? ` at ${chart.labels[own]}` : "";
      return element("span", { class: "curve" }, line, `${curve.name} `, element("b", {}, value), bounds, place);
    });
    fill(this.readout, [
      element("div", { class: "at" }, this.isDose ? `${chart.x_title}: about ${chart.labels[at]}` : `${chart.labels[at]}, ${chart.x_title} ${chart.steps[at]}`),
      element("div", { class: "curves" }, ...curves),
    ]);
  }
}
