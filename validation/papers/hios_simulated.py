"""HIOS's Fig. 7 to 11: speedups on random DAGs, by the estimates of a correct model.

The study files beside this one are the figures: ``simsched study run validation/papers/hios_fig8.toml -o FOLDER`` makes
the rows that are compared here. A correct model takes operators by falling priority, has each wait for the ends of its
producers, and values stages by the formula of HIOS's simulation.
"""

import tomllib
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

import simsched as ss
import workloads
from simsched.experiments.study import Study, run_study
from validation.papers.claims import Run, Values
from validation.papers.hios_numbers import DEFAULT, FIGURES, SCHEDULERS, point_name, settings, spread

QUICK_INSTANCES: Final = 1
INSTANCES: Final = 30

Samples = dict[str, tuple[float, ...]]
"""Of each scheduler a value per instance, in the order of instances."""


@cache
def points(figure: int, quick: bool, workers: int) -> dict[float, Samples]:
    """Return the speedups of all schedulers at each place on the axis of a figure."""
    return {x: _gathered(rows, "estimate_speedup") for x, rows in _rows(figure, quick, workers).items()}


@cache
def estimates(figure: int, quick: bool, workers: int) -> dict[float, Samples]:
    """Return the estimated makespans in us of all schedulers at each place on the axis of a figure."""
    return {x: _gathered(rows, "estimate_us") for x, rows in _rows(figure, quick, workers).items()}


@cache
def _rows(figure: int, quick: bool, workers: int) -> dict[float, list[Any]]:
    """Run the study of a figure; return its rows by their place on the axis."""
    path = Path(__file__).with_name(f"hios_fig{figure}.toml")
    asked = tomllib.loads(path.read_text()) | {"seeds": QUICK_INSTANCES if quick else INSTANCES}
    executor = "serial" if workers == 1 else "processes"
    with TemporaryDirectory() as folder:
        study = Study.from_dict(asked, path.name)
        found = run_study(study, folder, load=workloads.load_kind, executor=executor, workers=workers)
    axis, _ = FIGURES[figure]
    by_place: dict[float, list[Any]] = {}
    for row in found.rows:
        assert row["status"] == "ok", row
        by_place.setdefault(row[axis], []).append(row)
    return by_place


def _gathered(rows: list[Any], column: str) -> Samples:
    names = dict.fromkeys(row["scheduler"] for row in rows)
    return {
        name: tuple(float(row[column]) for row in sorted(rows, key=lambda row: row["seed"]) if row["scheduler"] == name)
        for name in names
    }


def speedups(figure: int, scheduler: str, run: Run) -> Values:
    """Return the mean speedup of a scheduler at each place on the axis of a figure, by that place."""
    return {f"{x:g}": mean(found[scheduler]) for x, found in points(figure, run.quick, run.workers).items()}


def over(figure: int, other: str, run: Run) -> Values:
    """Return the mean over instances of the makespan of another scheduler over that of HIOS-LP, place by place."""
    return {
        f"{x:g}": mean(theirs / ours for theirs, ours in zip(found[other], found["hios-lp"], strict=True))
        for x, found in estimates(figure, run.quick, run.workers).items()
    }


def stages_gain(figure: int, kind: str, run: Run) -> Values:
    """Return by how many % Algorithm 2 shortens the makespans of a mapping, on average, place by place."""
    return {
        f"{x:g}": 100.0 * (1.0 - sum(found[f"hios-{kind}"]) / sum(found[f"inter-{kind}"]))
        for x, found in estimates(figure, run.quick, run.workers).items()
    }


def latencies(figure: int, scheduler: str, run: Run) -> Values:
    """Return the mean estimated makespan of a scheduler in ms, place by place."""
    return {f"{x:g}": mean(found[scheduler]) / 1e3 for x, found in estimates(figure, run.quick, run.workers).items()}


def compared(figure: int, run: Run) -> Values:
    """Return mean speedups by the names of `hios_numbers.values`, and standard deviations under names with ±."""
    found = points(figure, run.quick, run.workers)
    samples = {point_name(s, x): found[x][s] for x in settings(figure) for s in SCHEDULERS}
    return {name: mean(s) for name, s in samples.items()} | {f"± {name}": spread(s) for name, s in samples.items()}


def one_gpu(run: Run) -> Values:
    """Return the mean speedups of Algorithm 2, and of IOS, on one GPU at the default."""
    gains = []
    for seed in range(QUICK_INSTANCES if run.quick else INSTANCES):
        graph = workloads.load("random:layered", **DEFAULT.parameters, seed=seed)
        plan = ss.schedule(graph, ss.Cluster.preset("a40"), "hios-lp", stage_latency="hios-sim")
        assert plan.estimate is not None
        gains.append(float(graph.time.sum()) / plan.estimate)
    return {"1 GPU + Algorithm 2": mean(gains), "IOS": speedups(7, "ios", run)["4"]}
