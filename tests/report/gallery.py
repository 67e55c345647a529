"""A page of every kind of chart."""

import numpy as np

import simsched as ss
import workloads
from simsched.show.chart import Axis, Chart, named
from simsched.show.report import Gantt, Section, write_report
from simsched.show.report.figures import figure_of
from simsched.show.report.makers import sections_of
from simsched.show.results import boxes_of, chart_of

NAMES = ("sequential", "lios", "heft", "ios", "hios-lp", "nimble", "my_package.my_module:round_robin_by_depth")
CAUSES = ("compute", "contention", "launch", "sync", "transfer", "dependency")


def charts():
    """Every kind of chart, with many names, long ones, and values over decades."""
    draw = np.random.default_rng(0).uniform
    numbered = {name: 1 + i for i, name in enumerate(NAMES)}
    speedups = {name: {n: i * draw(0.8, 1.2, 5) for n in (50, 200, 1000)} for name, i in numbered.items()}
    times = {
        name: {10**k: 10 ** (k * i / 3 - 5) * draw(0.9, 1.1, 3) for k in (2, 3, 4)} for name, i in numbered.items()
    }
    bars = {name: {each: draw(1, 4, 4) for each in ("inception_v3", "squeezenet", "randwire")} for name in NAMES[:4]}
    cells = {gpus: {n: 2 ** draw(-1, 2) for n in (50, 200, 1000)} for gpus in (1, 2, 4, 8)}
    points = {name: {name: i * np.array([1.0, draw(0.9, 1.1), 0.95, 1.05])} for name, i in numbered.items()}
    operators, networks, gpus = Axis("operators"), Axis("network"), Axis("GPUs")
    measured, predicted = Axis("measured makespan (ms)"), Axis("predicted makespan (ms)")
    ratio, note = Axis("speedup over sequential"), "mean and standard deviation of 5 instances a point"
    a100 = ss.Cluster.preset("a100")
    asked = ss.what_if(ss.schedule(workloads.load("squeezenet"), a100, "lios"), a100)
    return (
        Chart("line", speedups, Axis("operators", None), ratio, "Lines over sizes", reference=1.0, note=note),
        Chart("line", times, Axis("operators", True), Axis("search time (s)", True), "Growth", geometric=True),
        Chart("bar", named({name: draw(1, 4) for name in NAMES}), y=ratio, reference=1.0),
        Chart("bar", bars, networks, ratio, "Bars in groups", reference=1.0),
        boxes_of({name: 1e3 * i * draw(0.95, 1.05, 300) for name, i in numbered.items()}, title="Boxes"),
        Chart("box", bars, networks, ratio, "Boxes in groups"),
        Chart("map", cells, operators, gpus, "A map of ratios", reference=1.0, label="speedup"),
        Chart("map", cells, operators, gpus, "A map of values", label="makespan (ms)"),
        Chart("stack", {cause: {name: draw(0, 2) for name in NAMES} for cause in CAUSES}, measured, title="Causes"),
        Chart("scatter", points, measured, predicted, "Predicted against measured", hollow=frozenset({"heft"})),
        chart_of(asked.sensitivity()),
        chart_of(asked.sweep("operators.speed", [0.25, 0.5, 1.0, 2.0, 4.0])),
        chart_of(ss.breakeven("overhead.launch", "lios", "sequential", a100, graph=workloads.load("squeezenet"))),
    )


def write(folder):
    """Write the page into a folder; return its path."""
    graph, one, two = workloads.load("inception_v3"), ss.Cluster.preset("a100"), ss.Cluster.preset("a40", 2)
    found = ss.compare(graph, one, "fast", jitter=0.02, rng=0, samples=50)
    both = Gantt("Two GPUs", ss.simulate(ss.schedule(graph, two, "hios-lp"), two))
    sections = *sections_of(found), Section("Charts", tuple(map(figure_of, charts()))), Section("Two GPUs", (both,))
    write_report(sections, folder / "gallery.html", title="Gallery")
    return folder / "gallery.html"
