"use strict";
// Gantt charts: one filled path per kind of bar, which keeps ten thousand bars quick; what lies under the pointer is
// looked up in the numbers, not in the picture. Load curves share the axis of time.
(() => {
  const GAP = 0.35; // between devices, in rows
  const BAR = 0.42; // half of a row's height
  const LEAST = 7, MOST = 26, TALLEST = 900; // pixels of a row, and of all
  const CURVE = 96; // pixels of a load curve
  const TOP = 8, BOTTOM = 46, RIGHT = 16;
  const LINE = 11, LONGEST = 40; // pixels between names of rows, and characters of one
  const LABELS = 300; // names in bars at a time
  const NARROW = 2.5; // pixels of a bar that an edge would hide; where one in five is, there are no edges
  const config = { showTips: false, doubleClick: "reset", displayModeBar: false }; // the page has buttons of its own
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "&#37;{");
  const shortened = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}\u2026` : text);
  const blames = { kernel: "compute", copy: "transfer", launch: "launch", sync: "sync" };

  simsched.drawers.gantt = (plot) => {
    const chart = simsched.data(plot);
    const { bars, rows, kinds, names, scale, unit } = chart;
    const figure = plot.closest("figure");
    const spoken = figure.querySelector(".spoken");
    const shows = { path: true, host: false };
    const longest = chart.until / scale || 1;
    const whole = [0, longest * 1.01];
    const starts = bars.start.map((us) => us / scale);
    const ends = bars.start.map((us, i) => (us + bars.dur[i]) / scale);
    const parted = new Set(kinds.filter(({ what }) => what === "kernel" || what === "wait").map(({ colour }) => colour));
    const ofRow = rows.map(() => []);
    bars.row.forEach((row, i) => ofRow[row].push(i));
    const left = 22 + 6.4 * Math.max(8, ...rows.map((row) => Math.min(LONGEST, row.label.length)));
    let centres, present, unitHeight, bodyHeight, chosen = -1, hint = null;

    const clamp = ([a, b]) => {
      const width = Math.min(b - a, whole[1]);
      const from = Math.max(0, Math.min(a, whole[1] - width));
      return [from, from + width];
    };
    const range = () => (plot._fullLayout ? plot._fullLayout.xaxis.range.map(Number) : whole);
    const us = (value) => `${Number(value.toPrecision(value < 100 ? 3 : 6))} us`;
    const time = (value) => (scale === 1 ? `${value.toFixed(2)} us` : `${(value / scale).toFixed(4)} ${unit}`);

    function place() {
      let at = 0, before = null;
      centres = [];
      present = rows.map((row) => shows.host || row.what !== "host");
      rows.forEach((row, r) => {
        if (!present[r]) { centres.push(null); return; }
        if (before !== null && before !== row.device) at += GAP;
        before = row.device;
        centres.push(at + row.height / 2);
        at += row.height;
      });
      unitHeight = Math.max(LEAST, Math.min(MOST, TALLEST / Math.max(1, at)));
      bodyHeight = at;
    }

    // Rectangles of some bars as one line with holes, which is filled.
    function outline(which) {
      const x = [], y = [];
      for (const i of which) {
        const row = bars.row[i], half = BAR * rows[row].height, middle = centres[row];
        x.push(starts[i], ends[i], ends[i], starts[i], null);
        y.push(middle - half, middle - half, middle + half, middle + half, null);
      }
      return { x, y };
    }

    function traces(xrange) {
      const groups = kinds.map(() => [[], []]);
      const critical = [];
      bars.row.forEach((row, i) => {
        if (!present[row]) return;
        groups[bars.kind[i]][rows[row].measured].push(i);
        if (bars.path[i] && !rows[row].measured) critical.push(i);
      });
      const common = { type: "scatter", mode: "none", fill: "toself", hoverinfo: "skip", line: { simplify: false } };
      const found = [];
      groups.forEach((halves, k) => halves.forEach((which, measured) => {
        if (!which.length) return;
        found.push({ ...common, ...outline(which), meta: measured ? "measured" : "bars", opacity: measured ? 0.62 : 1,
          fillcolor: kinds[k].colour });
      }));
      if (critical.length && shows.path) {
        found.push({ ...common, ...outline(critical), meta: "path", fillcolor: "rgba(0,0,0,0)" });
      }
      const { x, y, text, color } = writing(xrange);
      found.push({ type: "scatter", mode: "text", x, y, text, textfont: { color, size: 10 }, meta: "labels", hoverinfo: "skip",
        cliponaxis: true });
      chart.loads.forEach((load, i) => {
        const x = load.time.map((t) => t / scale), yaxis = `y${i + 2}`;
        const line = { shape: "hv", width: 1.3 };
        for (const [key, name, colour, dash] of [["sm", "SM load", simsched.colour("accent"), "solid"],
          ["dram", "DRAM load", simsched.colour("warn"), "dot"]]) {
          found.push({ type: "scatter", mode: "lines", x, y: load[key], yaxis,
            line: { ...line, color: colour, dash }, meta: "load",
            hovertemplate: `${name} of ${escaped(load.device)}: %{y:.0%}<extra></extra>` });
        }
      });
      return found;
    }

    // Rows whose names there is room for, those of streams first; of rows of one name the first.
    function labelled() {
      const found = [];
      const named = rows.map((_, r) => r).filter((r) => present[r] && !(r && rows[r - 1].label === rows[r].label));
      for (const streams of [true, false]) {
        for (const r of named) {
          if ((rows[r].what === "stream") !== streams) continue;
          if (found.every((other) => Math.abs(centres[r] - centres[other]) * unitHeight >= LINE)) found.push(r);
        }
      }
      return found.sort((a, b) => a - b);
    }

    function layout(xrange) {
      const n = chart.loads.length, width = simsched.width(plot);
      const body = Math.max(60, bodyHeight * unitHeight), below = n * CURVE;
      const height = TOP + body + below + BOTTOM, inner = body + below;
      const found = {
        width, height, margin: { l: left, r: RIGHT, t: TOP, b: BOTTOM, autoexpand: false }, hovermode: "closest", dragmode: "zoom",
        showlegend: false,
        xaxis: { range: xrange, title: { text: `time (${unit})`, standoff: 6 }, anchor: n ? `y${n + 1}` : "y", zeroline: false },
        yaxis: { domain: [below / inner, 1], range: [bodyHeight + 0.1, -0.1], fixedrange: true, showgrid: false, zeroline: false,
          ticklabeloverflow: "allow" }, // there is room: names need not be measured
        shapes: chart.makespans.map((end, measured) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: end / scale, x1: end / scale,
          line: { width: 1, dash: measured ? "dot" : "dash" } })),
      };
      const ticks = labelled();
      found.yaxis.tickvals = ticks.map((r) => centres[r]);
      found.yaxis.ticktext = ticks.map((r) => escaped(shortened(rows[r].label)));
      if (unitHeight < 13) found.yaxis.tickfont = { size: 10 };
      chart.loads.forEach((load, i) => {
        const most = load.sm.concat(load.dram).reduce((a, b) => Math.max(a, b), 1);
        const title = { text: n > 1 ? escaped(load.device) : "load", font: { size: 11 } };
        found[`yaxis${i + 2}`] = { domain: [(n - 1 - i) * CURVE / inner, ((n - i) * CURVE - 18) / inner], range: [0, most * 1.08],
          fixedrange: true, title, nticks: 4, tickformat: ".0%", tickfont: { size: 10 }, zeroline: true };
      });
      return simsched.themed(found, false);
    }

    // Edges and names depend on how much is in view.
    function refine() {
      const [a, b] = range();
      const edge = simsched.colour("panel"), ink = simsched.colour("text");
      const least = NARROW * (b - a) / (simsched.width(plot) - left - RIGHT);
      let inView = 0, narrow = 0;
      for (let i = 0; i < starts.length; i += 1) {
        if (!present[bars.row[i]] || starts[i] > b || ends[i] < a || !parted.has(kinds[bars.kind[i]].colour)) continue;
        inView += 1;
        if (ends[i] - starts[i] < least) narrow += 1;
      }
      const wide = 5 * narrow <= inView;
      for (const group of plot.querySelectorAll("g.trace.scatter")) {
        const { meta: kind, fillcolor } = group.__data__[0].trace;
        const edged = wide && parted.has(fillcolor);
        for (const path of group.querySelectorAll(".js-fill")) {
          if (kind === "path") { path.style.stroke = ink; path.style.strokeWidth = wide ? "1.6px" : "0.9px"; }
          if (kind === "bars" || kind === "measured") {
            path.style.stroke = edged ? edge : path.style.fill;
            path.style.strokeWidth = edged ? "0.6px" : "0.3px";
          }
        }
      }
    }

    // Names of the bars in view that have room for them, in full or from the last dot or slash on.
    function writing([a, b]) {
      const perPixel = (b - a) / (simsched.width(plot) - left - RIGHT);
      const found = { x: [], y: [], text: [], color: [] };
      if (unitHeight < 11) return found;
      for (let i = 0; i < starts.length && found.x.length < LABELS; i += 1) {
        const row = bars.row[i];
        if (!present[row] || rows[row].what !== "stream" || kinds[bars.kind[i]].what !== "kernel") continue;
        const from = Math.max(a, starts[i]), to = Math.min(b, ends[i]);
        const room = (to - from) / perPixel - 6;
        if (room < 12) continue;
        const name = names[bars.name[i]], short = name.replace(/\//g, ".").split(".").pop();
        const text = [name, short].find((each) => each.length * 6 <= room);
        if (text === undefined) continue;
        found.x.push((from + to) / 2);
        found.y.push(centres[row]);
        found.text.push(escaped(text));
        found.color.push(kinds[bars.kind[i]].colour === "#0072B2" ? "#ffffff" : "#000000");
      }
      return found;
    }

    function label() {
      const { x, y, text, color } = writing(range());
      const at = plot.data.findIndex((each) => each.meta === "labels");
      Plotly.restyle(plot, { x: [x], y: [y], text: [text], "textfont.color": [color] }, [at]);
    }

    function show() {
      place();
      const xrange = plot._fullLayout ? range() : whole;
      const drawn = traces(xrange);
      const made = layout(xrange);
      plot.style.height = `${made.height}px`;
      Plotly.react(plot, drawn, made, config);
      refine();
      if (!plot.dataset.drawn) listen();
      plot.dataset.drawn = "yes";
    }

    const zoom = (to) => Plotly.relayout(plot, { "xaxis.range": clamp(to) });
    const moves = {
      in: ([a, b]) => [a + (b - a) / 4, b - (b - a) / 4], out: ([a, b]) => [a - (b - a) / 2, b + (b - a) / 2],
      left: ([a, b]) => [a - (b - a) / 5, b - (b - a) / 5], right: ([a, b]) => [a + (b - a) / 5, b + (b - a) / 5], all: () => whole,
    };

    // What a bar is, as (name, text) lines; the first is its title.
    function facts(i) {
      const row = rows[bars.row[i]], kind = kinds[bars.kind[i]];
      const from = bars.start[i], dur = bars.dur[i], alone = bars.alone[i], more = Math.max(0, dur - alone);
      const device = row.label.startsWith(row.device) ? "" : `${row.device} `;
      const found = [["", names[bars.name[i]]], ["kind", kind.name], ["where", device + row.label], ["start", time(from)],
        ["end", time(from + dur)], ["duration", us(dur)]];
      const worked = kind.what === "kernel" || kind.what === "copy";
      if (worked && !row.measured) found.push(["alone", us(alone)]);
      const parts = [];
      if (worked) {
        parts.push(`${blames[kind.what]} ${us(alone)}`);
        if (more + bars.wait[i] > 1e-3) parts.push(`contention ${us(more + bars.wait[i])}`);
      } else if (kind.what !== "wait") parts.push(`${blames[kind.what]} ${us(dur)}`);
      if (parts.length) found.push([bars.path[i] ? "blame" : "time", parts.join(" + ")]);
      if (bars.path[i]) found.push(["path", "on the critical path"]);
      return found;
    }

    function tell(i, x, y, aloud) {
      hide();
      chosen = i;
      hint = document.createElement("div");
      hint.className = "hint";
      const found = facts(i);
      for (const [name, text] of found) {
        const line = document.createElement(name ? "div" : "b");
        if (name) { const word = document.createElement("span"); word.textContent = name; line.append(word, text); } else line.textContent = text;
        hint.append(line);
      }
      document.body.append(hint);
      hint.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - hint.offsetWidth - 8))}px`;
      hint.style.top = `${y + 16 + hint.offsetHeight > innerHeight ? Math.max(4, y - hint.offsetHeight - 10) : y + 16}px`;
      if (aloud) spoken.textContent = found.map((each) => each.filter(Boolean).join(" ")).join("; ");
    }
    function hide() { hint?.remove(); hint = null; }

    const area = () => plot.querySelector(".xy .nsewdrag, .nsewdrag[data-subplot=xy]")?.getBoundingClientRect();
    // The bar at a point: of those that are thinner than the pointer the nearest.
    function under(clientX, clientY) {
      const box = area();
      if (!box || clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom) return -1;
      const [a, b] = range();
      const x = a + (clientX - box.left) / box.width * (b - a);
      const y = -0.1 + (clientY - box.top) / box.height * (bodyHeight + 0.2);
      const row = centres.findIndex((middle, r) => middle !== null && Math.abs(y - middle) <= rows[r].height / 2);
      if (row < 0) return -1;
      const here = ofRow[row], slack = 2 * (b - a) / box.width;
      let low = 0, high = here.length;
      while (low < high) { const middle = (low + high) >> 1; if (starts[here[middle]] <= x) low = middle + 1; else high = middle; }
      for (const i of [here[low - 1], here[low]]) {
        if (i !== undefined && x >= starts[i] - slack && x <= ends[i] + slack) return i;
      }
      return -1;
    }

    // From bar to bar with keys: along a row, or to what runs at that time in another one.
    function step(along, across) {
      const visible = rows.map((_, r) => r).filter((r) => present[r] && ofRow[r].length);
      if (!visible.length) return;
      let next = ofRow[visible[0]][0];
      if (chosen >= 0 && along) {
        const here = ofRow[bars.row[chosen]];
        next = here[Math.max(0, Math.min(here.length - 1, here.indexOf(chosen) + along))];
      } else if (chosen >= 0) {
        const row = visible[Math.max(0, Math.min(visible.length - 1, visible.indexOf(bars.row[chosen]) + across))];
        next = ofRow[row].reduce((best, i) => (Math.abs(starts[i] - starts[chosen]) < Math.abs(starts[best] - starts[chosen]) ? i : best));
      }
      const [a, b] = range(), middle = (starts[next] + ends[next]) / 2;
      const after = () => {
        const box = area(), [c, d] = range();
        tell(next, box.left + (middle - c) / (d - c) * box.width, box.top + (centres[bars.row[next]] + 0.1) / (bodyHeight + 0.2) * box.height, true);
      };
      if (middle < a || middle > b) zoom([middle - (b - a) / 2, middle + (b - a) / 2]).then(after);
      else after();
    }

    function listen() {
      plot.addEventListener("mousemove", (event) => {
        const i = under(event.clientX, event.clientY);
        if (i < 0) hide();
        else tell(i, event.clientX, event.clientY, false);
      });
      plot.addEventListener("mouseleave", hide);
      plot.addEventListener("blur", hide);
      plot.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };
        const steps = { n: [1, 0], p: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
        if (event.key in keys) zoom(moves[keys[event.key]](range()));
        else if (event.key in steps) step(...steps[event.key]);
        else if (event.key === "Escape") hide();
        else return;
        event.preventDefault();
      });
      figure.querySelector(".tools").addEventListener("click", (event) => {
        const button = event.target.closest("button"), what = button?.dataset.do;
        if (!what) return;
        if (what in moves) { zoom(moves[what](range())); return; }
        shows[what] = !shows[what];
        button.setAttribute("aria-pressed", String(shows[what]));
        hide();
        show();
      });
      let before = range().join();
      plot.on("plotly_relayout", () => {
        if (before === range().join()) return;
        before = range().join();
        hide();
        label();
        refine();
      });
      plot.on("plotly_afterplot", refine);
    }

    show();
    return { redraw: show };
  };
})();
