"use strict";
(() => {
  const data = JSON.parse(byId("data").textContent);
  for (const chart of data.charts) new CurveChart(byId(`chart-${chart.id}`), chart);
  if (data.viewer) new Viewer(data.viewer);
})();
