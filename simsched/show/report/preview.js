"use strict";
// The first view of a Gantt chart as plain SVG, from the traces and the layout that Plotly gets. It is there at once,
// while the library that draws takes its time to start, and makes way for it.
(() => {
  const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg");
  const MOST_TICKS = 9;

  const round = (value) => Math.round(value * 100) / 100;

  function child(parent, name, attributes, text) {
    const made = document.createElementNS(SVG.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.innerHTML = text; // escaped, as Plotly wants it
    parent.append(made);
    return made;
  }

  // Round numbers of a range, a handful of them.
  function ticks([a, b], most = MOST_TICKS) {
    const least = (b - a) / most, power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) || b - a;
    const found = [];
    for (let i = Math.ceil(a / step); i * step <= b; i += 1) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  simsched.preview = (plot, traces, layout) => {
    const { width, height, margin, font, xaxis } = layout;
    const w = width - margin.l - margin.r, h = height - margin.t - margin.b, bottom = margin.t + h;
    const px = (x) => round(margin.l + (x - xaxis.range[0]) / (xaxis.range[1] - xaxis.range[0]) * w);
    const py = (axis, y) => {
      const { domain: [low, high], range: [from, to] } = layout[axis.replace("y", "yaxis")];
      return round(bottom - h * (low + (y - from) / (to - from) * (high - low)));
    };
    const svg = SVG.cloneNode();
    for (const [key, value] of [["class", "preview"], ["width", width], ["height", height], ["aria-hidden", "true"]]) {
      svg.setAttribute(key, value);
    }
    svg.style.cssText = `font: ${font.size}px ${font.family}; fill: ${font.color}`;
    for (const x of ticks(xaxis.range)) {
      child(svg, "path", { d: `M${px(x)} ${margin.t}V${bottom}`, stroke: xaxis.gridcolor });
      child(svg, "text", { x: px(x), y: bottom + 15, "text-anchor": "middle" }, String(x));
    }
    child(svg, "text", { x: margin.l + w / 2, y: height - 8, "text-anchor": "middle" }, xaxis.title.text);
    layout.yaxis.ticktext.forEach((text, i) => {
      const size = layout.yaxis.tickfont?.size || font.size;
      child(svg, "text", { x: margin.l - 5, y: py("y", layout.yaxis.tickvals[i]) + 4, "text-anchor": "end", "font-size": size }, text);
    });
    for (const key of Object.keys(layout).filter((each) => /^yaxis\d/.test(each))) {
      const axis = key.replace("axis", ""), { range, title, gridcolor } = layout[key];
      for (const y of ticks(range, 4)) {
        const at = py(axis, y);
        child(svg, "path", { d: `M${margin.l} ${at}h${w}`, stroke: gridcolor });
        child(svg, "text", { x: margin.l - 5, y: at + 4, "text-anchor": "end", "font-size": 10 }, `${Math.round(100 * y)}%`);
      }
      const middle = (py(axis, range[0]) + py(axis, range[1])) / 2, left = Math.max(12, margin.l - 52);
      child(svg, "text", { transform: `translate(${left} ${middle}) rotate(-90)`, "text-anchor": "middle", "font-size": 11 }, title.text);
    }
    for (const { x0, line } of layout.shapes) {
      child(svg, "path", { d: `M${px(x0)} ${margin.t}V${bottom}`, stroke: line.color, "stroke-dasharray": line.dash === "dot" ? "2 3" : "6 4" });
    }
    for (const { x, y, yaxis = "y", mode, meta, fillcolor, opacity = 1, line: look, text, textfont } of traces) {
      if (mode === "none") {
        let d = "";
        for (let i = 0; i < x.length; i += 5) d += `M${px(x[i])} ${py("y", y[i])}H${px(x[i + 1])}V${py("y", y[i + 2])}H${px(x[i])}Z`;
        child(svg, "path", { d, fill: fillcolor, opacity, ...(meta === "path" ? { stroke: font.color } : {}) });
      } else if (mode === "lines") {
        const d = x.map((each, i) => (i ? `H${px(each)}V${py(yaxis, y[i])}` : `M${px(each)} ${py(yaxis, y[i])}`)).join("");
        const dots = look.dash === "dot" ? { "stroke-dasharray": "2 2" } : {};
        child(svg, "path", { d, fill: "none", stroke: look.color, "stroke-width": look.width, ...dots });
      } else {
        x.forEach((each, i) => child(svg, "text",
          { x: px(each), y: py("y", y[i]) + 4, "text-anchor": "middle", "font-size": textfont.size, style: `fill: ${textfont.color[i]}` }, text[i]));
      }
    }
    plot.querySelector(".preview")?.remove();
    plot.append(svg);
  };
})();
