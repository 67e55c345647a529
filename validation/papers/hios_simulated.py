"""HIOS's simulated study, Fig. 7 to 11: its settings, and speedups on random DAGs by the estimates of a correct model.

A correct model takes operators by falling priority, has each wait for the ends of its producers, and values stages by
the formula of HIOS's simulation. Values are means of 30 graphs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.experiments.study import Study, run_study
from validation.papers.claims import DEVIATION, Run, Values

SCHEDULERS: Final = ("inter-lp", "hios-lp", "inter-mr", "hios-mr")
_BY_FORMULA: Final = {"stage_latency": "hios-sim"}


class Setting(NamedTuple):
    """GPUs and a random DAG; without `n_edges` it has two an operator."""

    gpus: int = 4
    n_ops: int = 200
    n_layers: int = 14
    comm_ratio: float = 0.8
    n_edges: int | None = None

    @property
    def workload(self) -> dict[str, Any]:
        """Of the graph, the parameters."""
        return {name: value for name, value in self._asdict().items() if name != "gpus" and value is not None}


class Figure(NamedTuple):
    """Swept parameter, the name of a place on the axis in tables, and the places of collected and of read values."""

    axis: str
    title: str
    collected: tuple[float, ...]
    besides: tuple[float, ...] = ()

    def at(self, x: float) -> Setting:
        """Return the setting at a place on the axis."""
        swept: dict[str, Any] = {self.axis: x}
        setting = Setting(**swept)
        return setting._replace(n_edges=None) if setting.n_edges == 2 * setting.n_ops else setting


FIGURES: Final[Mapping[int, Figure]] = {
    7: Figure("gpus", "{:g} GPUs", (2, 4, 8, 12), (6, 10)),
    8: Figure("n_ops", "{:g} operators", (100, 200, 400), (300,)),
    9: Figure("n_edges", "{:g} edges", (400, 500, 600), (450, 550)),
    10: Figure("n_layers", "{:g} layers", (6, 10, 14, 18, 22)),
    11: Figure("comm_ratio", "p = {:.1f}", (0.4, 0.6, 0.8, 1.0, 1.2)),
}

Samples = Mapping[str, Sequence[float]]
"""Of each scheduler a value per instance, in the order of instances."""


def instances(run: Run) -> int:
    """Return how many graphs there are of a setting."""
    return 1 if run.quick else 30


def study(number: int, seeds: int) -> Study:
    """Return the study that is a figure, IOS pruned as HIOS prunes it."""
    axis, _, collected, besides = FIGURES[number]
    swept: dict[str, Any] = {axis: sorted((*collected, *besides))}
    return Study(
        f"HIOS Fig. {number}",
        (
            "sequential",
            {"scheduler": "ios", "label": "ios", "r": 3, "s": 2, **_BY_FORMULA},
            *({"scheduler": name, "label": name, **(_BY_FORMULA if "hios" in name else {})} for name in SCHEDULERS),
        ),
        workload=({"kind": "layered"} | Setting().workload | ({} if axis == "gpus" else swept),),
        cluster=({"gpu": "a40", "gpus": Setting().gpus} | (swept if axis == "gpus" else {}),),
        seeds=seeds,
        simulation={"bound": False},
    )


@cache
def _rows(number: int, run: Run) -> dict[float, list[Mapping[str, Any]]]:
    """Run the study of a figure; return its rows by their place on the axis."""
    axis, executor = FIGURES[number].axis, "serial" if run.workers == 1 else "processes"
    with TemporaryDirectory() as folder:
        asked = study(number, instances(run))
        found = run_study(asked, folder, load=workloads.load_kind, executor=executor, workers=run.workers)
    places: dict[float, list[Mapping[str, Any]]] = {}
    for row in sorted(found.rows, key=lambda row: row["seed"]):
        assert row["status"] == "ok", row
        places.setdefault(row[f"{'cluster' if axis == 'gpus' else 'workload'}.{axis}"], []).append(row)
    return dict(sorted(places.items()))


def samples(number: int, run: Run, column: str = "estimate_us") -> dict[float, Samples]:
    """Return a column of all schedulers at each place on the axis of a figure."""
    found: dict[float, dict[str, list[float]]] = {}
    for x, rows in _rows(number, run).items():
        for row in rows:
            found.setdefault(x, {}).setdefault(row["scheduler"], []).append(float(row[column]))
    return dict(found)


def _at_places(
    number: int, value: Callable[[Samples], float], column: str = "estimate_us"
) -> Callable[[Run], dict[str, float]]:
    return lambda run: {f"{x:g}": value(found) for x, found in samples(number, run, column).items()}


def speedups(number: int, scheduler: str) -> Callable[[Run], dict[str, float]]:
    """Return the function that measures the mean speedup of a scheduler at each place on the axis of a figure."""
    return _at_places(number, lambda found: mean(found[scheduler]), "estimate_speedup")


def over(number: int, other: str) -> Callable[[Run], dict[str, float]]:
    """Return the function that measures the mean of another's makespan relative to HIOS-LP's, place by place."""
    return _at_places(
        number, lambda found: mean(theirs / ours for theirs, ours in zip(found[other], found["hios-lp"], strict=True))
    )


def stages_gain(number: int, kind: str) -> Callable[[Run], dict[str, float]]:
    """Return the function that measures by how many % Algorithm 2 shortens a mapping's makespans on average."""
    return _at_places(number, lambda found: 100.0 * (1.0 - sum(found[f"hios-{kind}"]) / sum(found[f"inter-{kind}"])))


def latencies(number: int, scheduler: str) -> Callable[[Run], dict[str, float]]:
    """Return the function that measures the mean estimated makespan of a scheduler in ms, place by place."""
    return _at_places(number, lambda found: mean(found[scheduler]) / MS)


def baselines(run: Run) -> Values:
    """Return the makespans in ms of one operator after the other and of IOS, mean over the places of Fig. 10."""
    return {name: mean(latencies(10, name)(run).values()) for name in ("sequential", "ios")}


def extremes(measure: Callable[[Run], Values]) -> Callable[[Run], Values]:
    """Return the function that measures values with the least and the most of them."""

    def measured(run: Run) -> Values:
        found = measure(run)
        return {"least": min(found.values()), "most": max(found.values()), **found}

    return measured


def with_spread(found: Samples) -> dict[str, float]:
    """Return means, then standard deviations under names with ±: 0 of a single value, as in a quick run."""
    means = {name: mean(values) for name, values in found.items()}
    return means | {DEVIATION + name: stdev(v) if len(v) > 1 else 0.0 for name, v in found.items()}


def compared(number: int, run: Run) -> Values:
    """Return speedups with their spread where values were collected, by scheduler and place."""
    found = samples(number, run, "estimate_speedup")
    return with_spread({f"{name} {x:g}": found[x][name] for x in FIGURES[number].collected for name in SCHEDULERS})


def one_gpu(run: Run) -> Values:
    """Return the mean speedups of Algorithm 2, and of IOS, on one GPU at the default."""
    gains = []
    for seed in range(instances(run)):
        graph = workloads.load("random:layered", **Setting().workload, seed=seed)
        plan = ss.schedule(graph, ss.Cluster.preset("a40"), "hios-lp", stage_latency="hios-sim")
        assert plan.estimate is not None
        gains.append(float(graph.time.sum()) / plan.estimate)
    return {"1 GPU + Algorithm 2": mean(gains), "IOS": speedups(7, "ios")(run)["4"]}
