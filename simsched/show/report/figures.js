"use strict";
// Figures that come as Plotly's traces and layout: lines, bars, boxes, maps, points.
(() => {
  const PRINTED = 660; // pixels that fit a page
  const config = {
    displaylogo: false, responsive: true, showTips: false,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "toggleSpikelines"],
  };

  simsched.width = (plot) => (simsched.printing ? PRINTED : plot.clientWidth || PRINTED);

  simsched.drawers.figure = (plot) => {
    const figure = simsched.data(plot);
    const base = plot.clientHeight;
    // A legend of several lines takes its room below, not from the data.
    const fit = () => {
      const legend = plot.querySelector(".legend .bg")?.getBoundingClientRect().height || 0;
      const height = base + Math.max(0, legend - 30);
      plot.style.height = `${height}px`;
      if (Math.abs(plot._fullLayout.height - height) > 2) Plotly.relayout(plot, { height });
    };
    const shown = () => {
      const text = simsched.colour("text");
      // what has no colour of its own is drawn like the text
      const data = figure.data.map((each) => (each.meta === "ink" ? { ...each, line: { ...each.line, color: text } } : each));
      const layout = {
        hovermode: "closest", uirevision: "kept", margin: { l: 60, r: 20, t: 16, b: 48 }, ...figure.layout,
        width: simsched.width(plot), height: plot.clientHeight,
      };
      return [plot, data, simsched.themed(layout), { ...config, displayModeBar: simsched.printing ? false : "hover" }];
    };
    Plotly.newPlot(...shown());
    fit();
    return { redraw: () => { Plotly.react(...shown()); fit(); } };
  };
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (!simsched.printing) for (const each of simsched.drawn.values()) each.redraw(); }, 150);
  });
})();
