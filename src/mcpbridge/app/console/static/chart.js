// Draws the numbers that a page has in `data-chart`: names, x and series of the same length.
"use strict";
(() => {
  const colours = ["#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2"];
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--pico-color").trim() || "#333";
  const line = style.getPropertyValue("--pico-muted-border-color").trim() || "#ccc";

  function draw(figure) {
    const { names, x, series, time } = JSON.parse(figure.dataset.chart);
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const options = {
      width: figure.clientWidth || 600,
      height: 220,
      scales: { x: { time: Boolean(time) } },
      axes: [axis, { ...axis, size: 64 }],
      series: [{ label: time ? "time" : "row" }, ...names.map((label, at) => ({ label, stroke: colours[at % colours.length], width: 1.5, points: { show: x.length < 60 } }))],
    };
    const plot = new uPlot(options, [x, ...series], figure);
    new ResizeObserver(() => plot.setSize({ width: figure.clientWidth, height: 220 })).observe(figure);
  }

  const drawAll = (root) => root.querySelectorAll("[data-chart]:not([data-drawn])").forEach((figure) => {
    figure.dataset.drawn = "";
    draw(figure);
  });
  drawAll(document);
  document.addEventListener("htmx:afterSwap", (event) => drawAll(event.target));
})();
