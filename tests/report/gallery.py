"""A page of every kind of chart, and the same as pictures: ``python tests/report/gallery.py FOLDER``."""

import sys
from functools import partial
from pathlib import Path

import numpy as np

import simsched as ss
import workloads
from simsched.show.chart import Axis, Chart, named
from simsched.show.paper import draw
from simsched.show.report import Gantt, Section, write_report
from simsched.show.report.figures import figure_of
from simsched.show.report.makers import sections_of
from simsched.show.results import boxes_of, chart_of

NAMES = ("sequential", "lios", "heft", "ios", "hios-lp", "nimble", "my_package.my_module:round_robin_by_depth")


def charts():
    """Every kind of chart by name, with many names, long ones, and values over decades."""
    rng = np.random.default_rng(0)
    speedups = {name: {n: (1 + i) * rng.uniform(0.8, 1.2, 5) for n in (50, 200, 1000)} for i, name in enumerate(NAMES)}
    times = {name: {n: 1e-5 * n ** (i / 3) * rng.uniform(0.9, 1.1, 3) for n in (50, 200, 1000, 10_000)}
             for i, name in enumerate(NAMES)}  # fmt: skip
    networks = ("inception_v3", "squeezenet", "randwire")
    bars = {name: {each: rng.uniform(1, 4, 4) for each in networks} for name in NAMES[:4]}
    cells = {gpus: {n: 2 ** rng.uniform(-1, 2) for n in (50, 200, 1000)} for gpus in (1, 2, 4, 8)}
    points = {name: {name: np.array([1.0, rng.uniform(0.9, 1.1), 0.95, 1.05]) * (1 + i)}
              for i, name in enumerate(NAMES)}  # fmt: skip
    makespan, ratio = Axis("makespan (ms)"), Axis("speedup over sequential")
    plan = ss.schedule(workloads.load("squeezenet"), ss.Cluster.preset("a100"), "lios")
    asked = ss.what_if(plan, ss.Cluster.preset("a100"))
    return {
        "lines": Chart("line", speedups, Axis("operators", None), ratio, "Lines over sizes", reference=1.0,
                       note="mean and standard deviation of 5 instances a point"),
        "growth": Chart("line", times, Axis("operators", True), Axis("search time (s)", True), "Growth",
                        geometric=True),
        "bars": Chart("bar", named({name: rng.uniform(1, 4) for name in NAMES}), y=ratio, reference=1.0),
        "groups": Chart("bar", bars, Axis("network"), ratio, "Bars in groups", reference=1.0),
        "boxes": boxes_of({name: 1e3 * (1 + i) * rng.normal(1, 0.02, 300) for i, name in enumerate(NAMES)},
                          title="Boxes"),
        "box groups": Chart("box", bars, Axis("network"), ratio, "Boxes in groups"),
        "ratios": Chart("map", cells, Axis("operators"), Axis("GPUs"), "A map of ratios", reference=1.0,
                        label="speedup"),
        "map": Chart("map", cells, Axis("operators"), Axis("GPUs"), "A map of values", label="makespan (ms)"),
        "stack": Chart("stack", {cause: {name: rng.uniform(0, 2) for name in NAMES}
                                 for cause in ("compute", "contention", "launch", "sync", "transfer", "dependency")},
                       makespan, title="Where the time goes"),
        "scatter": Chart("scatter", points, Axis("measured makespan (ms)"), Axis("predicted makespan (ms)"),
                         "Predicted against measured", hollow=frozenset({"heft"})),
        "tornado": chart_of(asked.sensitivity()),
        "sweep": chart_of(asked.sweep("operators.speed", [0.25, 0.5, 1.0, 2.0, 4.0])),
        "break-even": chart_of(ss.breakeven("overhead.launch", "lios", "sequential", ss.Cluster.preset("a100"),
                                            graph=workloads.load("squeezenet"))),
    }  # fmt: skip


def write(folder):
    """Write the page into a folder; return its path, and what draws each of its pictures there."""
    graph, one, two = workloads.load("inception_v3"), ss.Cluster.preset("a100"), ss.Cluster.preset("a40", 2)
    found = ss.compare(graph, one, "fast", jitter=0.02, rng=0, samples=50)
    drawn, both = charts(), ss.simulate(ss.schedule(graph, two, "hios-lp"), two)
    sections = [*sections_of(found), Section("Charts", tuple(map(figure_of, drawn.values()))),
                Section("Two GPUs", (Gantt("Two GPUs", both),))]  # fmt: skip
    write_report(sections, folder / "gallery.html", title="Gallery")
    pictures = [partial(draw, chart, folder / f"{name}.png", relative=None) for name, chart in drawn.items()]
    pictures += [partial(found.traces[name].gantt, folder / f"gantt {name}.png") for name in ("nimble", "lios")]
    pictures += [partial(both.gantt, folder / "gantt two GPUs.png", host=True),
                 partial(ss.to_svg, found.plans["lios"], folder / "schedule.svg")]  # fmt: skip
    return folder / "gallery.html", pictures


if __name__ == "__main__":
    page, pictures = write(Path(sys.argv[1]))
    for picture in pictures:
        picture()
    print(page)
