"use strict";
// What the whole page shares: the theme, tables, tabs, drawing on sight and printing. Figures are in figures.js,
// Gantt charts in gantt.js; both register how they are drawn in `drawers`.
const simsched = { drawers: {}, drawn: new Map(), printing: false };

(() => {
  const root = document.documentElement;
  const probe = document.createElement("span");
  probe.hidden = true; // it takes no room: nothing need be laid out anew

  // Colours of the style sheet as they are now: it alone knows what light and dark look like.
  simsched.colour = (name) => {
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  simsched.data = (plot) => JSON.parse(plot.closest("figure").querySelector("script").textContent);

  // Axes, texts and grounds of a layout in the colours of the theme; margins that grow with labels draw twice.
  simsched.themed = (layout, automargin = true) => {
    const [text, soft, grid, panel] = ["text", "soft", "grid", "panel"].map(simsched.colour);
    const found = {
      ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, size: 12, family: getComputedStyle(document.body).fontFamily, ...layout.font },
      hoverlabel: { bgcolor: panel, bordercolor: grid, font: { color: text } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: text, orientation: "v" }, // beside legends
    };
    for (const key of Object.keys(found)) {
      if (/^[xy]axis/.test(key)) {
        found[key] = { gridcolor: grid, linecolor: soft, zerolinecolor: grid, automargin, ...found[key] };
      }
    }
    for (const shape of found.shapes || []) shape.line = { ...shape.line, color: soft };
    return found;
  };

  function draw(plot) {
    if (typeof Plotly === "undefined") return;
    if (plot.closest("[hidden]") && !simsched.printing) return;
    for (const each of plot.querySelectorAll(".unseen")) each.remove();
    const known = simsched.drawn.get(plot);
    if (known) known.redraw();
    else simsched.drawn.set(plot, simsched.drawers[plot.dataset.kind](plot));
  }

  const soon = (act) => requestAnimationFrame(() => setTimeout(act));

  // Runs the library that draws: as a script of the page, whose digest the page allows.
  function library() {
    const text = document.getElementById("plotly");
    if (!text || typeof Plotly !== "undefined") return;
    const script = document.createElement("script");
    script.textContent = text.textContent;
    text.remove();
    document.body.append(script);
  }

  const plots = () => [...document.querySelectorAll(".plot")];

  function drawAll(force) {
    for (const plot of plots()) if (force || simsched.drawn.has(plot)) draw(plot);
  }

  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && !simsched.drawn.has(target)) draw(target);
    }
  }, { rootMargin: "300px" });

  // Charts below the first screen are drawn when nothing else is to be done: nobody has to scroll to them first.
  const idle = window.requestIdleCallback ?? ((run) => setTimeout(run, 50));
  function drawRest() {
    if (typeof Plotly === "undefined") return;
    const next = plots().find((plot) => !simsched.drawn.has(plot) && plot.offsetParent !== null);
    if (next) { draw(next); idle(drawRest); }
  }

  function themes(button) {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const say = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; say(); drawAll(); });
    dark.addEventListener("change", () => { say(); drawAll(); });
    say();
  }

  // A click sorts upwards, the next one downwards. Equal rows keep their order, what is missing stays last.
  function sorting(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const rows = [...table.tBodies[0].rows].map((row, place) => {
        const cell = row.cells[column];
        const key = cell.dataset.v;
        return { row, place, key: key === undefined ? cell.textContent : key === "" ? null : Number(key) };
      });
      rows.sort((a, b) => {
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
        const [x, y] = [a, b].map((each) => typeof each.key === "number"); // numbers come before texts
        const order = x && y ? (a.key > b.key) - (a.key < b.key)
          : x || y ? y - x : a.key.localeCompare(b.key, "en", { numeric: true });
        return (down ? -order : order) || a.place - b.place;
      });
      table.tBodies[0].append(...rows.map((each) => each.row));
      for (const each of heads) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    }));
  }

  function tabs(list) {
    const all = [...list.children], panels = [...list.parentElement.children].slice(1);
    const open = (tab) => {
      all.forEach((each, i) => {
        each.setAttribute("aria-selected", String(each === tab));
        each.tabIndex = each === tab ? 0 : -1;
        panels[i].hidden = each !== tab;
      });
    };
    list.addEventListener("click", (event) => { if (event.target.role === "tab") open(event.target); });
    list.addEventListener("keydown", (event) => {
      const here = all.indexOf(document.activeElement);
      const places = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 };
      if (here < 0 || !(event.key in places)) return;
      const tab = all[(places[event.key] + all.length) % all.length];
      open(tab);
      tab.focus();
      event.preventDefault();
    });
  }

  addEventListener("DOMContentLoaded", () => {
    themes(document.querySelector(".theme"));
    document.querySelectorAll("table").forEach(sorting);
    document.querySelectorAll("[role=tablist]").forEach(tabs);
    // a frame on, texts and tables have been painted; then come the figures
    soon(() => {
      library();
      plots().forEach((plot) => seen.observe(plot));
      soon(() => soon(() => { root.dataset.ready = "yes"; idle(drawRest); }));
    });
  });
  addEventListener("beforeprint", () => {
    simsched.printing = true;
    simsched.kept = root.dataset.theme;
    root.dataset.theme = "light";
    library();
    for (const panel of document.querySelectorAll("[role=tabpanel][hidden]")) panel.dataset.shut = "";
    for (const panel of document.querySelectorAll("[data-shut]")) panel.hidden = false;
    drawAll(true);
  });
  addEventListener("afterprint", () => {
    simsched.printing = false;
    if (simsched.kept) root.dataset.theme = simsched.kept;
    else delete root.dataset.theme;
    for (const panel of document.querySelectorAll("[data-shut]")) { panel.hidden = true; delete panel.dataset.shut; }
    drawAll();
  });
})();
