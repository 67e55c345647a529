"""`Comparison` to and from JSON documents."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import inf, isfinite
from typing import Any, Final

import numpy as np

from simsched.base.errors import FormatError
from simsched.base.io import Record, document, naming
from simsched.base.numeric import is_number
from simsched.base.units import TIE
from simsched.experiments.comparison.rows import Draws, Row, Sampling
from simsched.experiments.comparison.table import Comparison
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.simulator import Makespans, simulate, simulate_many
from simsched.simulator.baking import placed_operator_times

FORMAT, VERSION = "simsched.comparison", 1
_MOST_STORED: Final = 10_000  # samples of a schedule that stand in a document
_MOST_SAMPLES: Final = 100_000_000  # that a document may ask to be drawn
_TEXTS: Final = ("warning", "reason")
_COUNTS: Final = ("streams", "devices", "syncs")
_NUMBERS: Final = ("makespan_us", "p50_us", "p95_us", "p99_us", "estimate_us", "speedup", "over_bound",
                   "peak_memory_bytes", "sm_utilization", "sm_efficiency", "search_s")  # fmt: skip


def to_dict(found: Comparison) -> dict[str, Any]:
    """See `Comparison.to_dict`."""
    graphs = _Graphs(found.graph)
    plans: dict[str, Any] = {}
    for name, plan in found.plans.items():
        graph = found.traces[name].graph  # with the times of a calibration
        times = None if found.cost is None else placed_operator_times(plan.over(graph), found.cluster, found.cost)
        plans[name] = plan.to_dict() | {"graph": graphs.number(graph, times)}
    stored = {name: each.values.tolist() for name, each in found.samples.items() if len(each) <= _MOST_STORED}
    return {
        "format": FORMAT,
        "version": VERSION,
        "cluster": found.cluster.to_dict(),
        "sampling": None if found.sampling is None else asdict(found.sampling),
        "draws": None if found.draws is None else asdict(found.draws),
        "rows": [asdict(row) for row in found.rows],
        "plans": plans,
        "samples": stored,
        "graphs": graphs.documents,
        "graph": 0,
    }


class _Graphs:
    """The documents of the graphs of a comparison, each once; the first is the one that was compared."""

    def __init__(self, first: OpGraph) -> None:
        self.documents = [first.to_dict()]
        self._known = {(id(first), b""): 0}

    def number(self, graph: OpGraph, times: Floats | None) -> int:
        """Return the place of a graph, with other times in us if any are given, shape (n_ops,)."""
        key = (id(graph), b"" if times is None else times.tobytes())
        if key not in self._known:
            self._known[key] = len(self.documents)
            written = graph.to_dict()
            if times is not None:
                for row, time in zip(written["operators"], times.tolist(), strict=True):
                    row["time"] = time
            self.documents.append(written)
        return self._known[key]


def from_dict(data: Any, source: str) -> Comparison:
    """See `Comparison.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    cluster = Cluster.from_dict(top.take("cluster", dict), f"{source}: cluster")
    sampling, draws = (top.take(key, dict, None) for key in ("sampling", "draws"))
    sampled = None if sampling is None else _read_sampling(Record(sampling, f"{source}: sampling"))
    drawn = None if draws is None else _read_draws(Record(draws, f"{source}: draws"))
    rows = tuple(_read_row(row) for row in top.records("rows"))
    documents, number = top.take("graphs", list), top.take("graph", int)
    graphs = {number: OpGraph.from_dict(_of(documents, number, source), f"{source}: graphs[{number}]")}
    given, samples = top.take("plans", dict), top.take("samples", dict)
    top.done()
    done = [row.scheduler for row in rows if row.makespan_us is not None]
    if len({row.scheduler for row in rows}) < len(rows) or sorted(done) != sorted(given):
        raise FormatError(f"{source}: 'plans' must hold one schedule for each row with a makespan, under its name")
    if (sampled is not None and drawn is None and done) or not samples.keys() <= given.keys():
        raise FormatError(f"{source}: 'samples' must hold those of schedules, and 'draws' the jitter of 'sampling'")
    plans = {name: _read_plan(given[name], documents, graphs, f"{source}: plans[{name!r}]") for name in done}
    traces = {row.scheduler: _simulated(plans[row.scheduler], cluster, drawn if sampled is None else None, row, source)
              for row in rows if row.scheduler in plans}  # fmt: skip
    known = _read_samples(samples, sampled, source)
    makespans: Mapping[str, Makespans] = {}
    if sampled is not None and drawn is not None:
        makespans = _Samples(plans, cluster, sampled.n, drawn, known)
    return Comparison(graphs[number], cluster, rows, plans, traces, makespans, sampled, drawn)


def _of(documents: list[Any], number: int, where: str) -> Any:
    if not 0 <= number < len(documents):
        raise FormatError(f"{where}: there is no graph {number}; the file has {len(documents)}")
    return documents[number]


def _read_plan(data: Any, documents: list[Any], graphs: dict[int, OpGraph], where: str) -> Schedule:
    """Return a schedule; those of one graph share it."""
    number = Record(data, where).take("graph", int)
    plan = Schedule.from_dict({**data, "graph": _of(documents, number, where)}, where)
    return plan.over(graphs.setdefault(number, plan.graph))


def _simulated(plan: Schedule, cluster: Cluster, draws: Draws | None, row: Row, source: str) -> Trace:
    jitter, seed = (None, None) if draws is None else (draws.jitter, draws.seed)
    with naming(f"{source}: plans[{row.scheduler!r}]"):
        trace = simulate(plan, cluster, jitter=jitter, rng=seed)
    if row.makespan_us is None or abs(trace.makespan - row.makespan_us) > TIE * max(trace.makespan, row.makespan_us):
        raise FormatError(
            f"{source}: the schedule of {row.scheduler!r} takes {trace.makespan:.6f} us, and its row says "
            f"{row.makespan_us} us: the file was changed, or another release made it; compare again"
        )
    return trace


def _read_row(row: Record) -> Row:
    known: dict[str, Any] = {"scheduler": row.take("scheduler", str)}
    for names, kind in ((_NUMBERS, float), (_COUNTS, int), (_TEXTS, str)):
        known |= {name: row.take(name, kind, None) for name in names}
    amounts = {name: known[name] for name in (*_NUMBERS, *_COUNTS) if known[name] is not None}
    bad = next((name for name, amount in amounts.items() if not 0 <= amount < inf), None)
    if bad is not None:
        raise FormatError(f"{row.where}: {bad} must be finite and not negative, not {known[bad]!r:.40}")
    if (known["makespan_us"] is None) != (known["reason"] is not None):
        raise FormatError(f"{row.where}: a row has either a makespan_us or a reason why there is none")
    return row.build(Row, **known)


def _read_sampling(row: Record) -> Sampling:
    n = row.take("n", int)
    if not 1 <= n <= _MOST_SAMPLES:
        raise FormatError(f"{row.where}: n must be from 1 to {_MOST_SAMPLES}, not {n}")
    return row.build(Sampling, n=n, jitter=_read_jitter(row), seed=row.take("seed", int, None))


def _read_draws(row: Record) -> Draws:
    seed = row.take("seed", int)
    if seed < 0:
        raise FormatError(f"{row.where}: seed must not be negative, not {seed}")
    return row.build(Draws, jitter=_read_jitter(row), seed=seed)


def _read_jitter(row: Record) -> Any:
    jitter = row.take("jitter", (float, dict))
    values = jitter.values() if isinstance(jitter, dict) else (jitter,)
    if not all(is_number(value) and isfinite(value) for value in values):
        raise FormatError(f"{row.where}: jitter must be a number, or one for each operator by name")
    return jitter


def _read_samples(data: dict[str, Any], sampling: Sampling | None, source: str) -> dict[str, Makespans]:
    found = {}
    for name, values in data.items():
        usable = isinstance(values, list) and all(is_number(value) and isfinite(value) for value in values)
        if sampling is None or not usable or len(values) != sampling.n:
            raise FormatError(f"{source}: samples[{name!r}] must be as many makespans as 'sampling' says")
        found[name] = Makespans(np.array(values, np.float64))
    return found


class _Samples(Mapping[str, Makespans]):
    """Samples by scheduler: those of a document, and others drawn when somebody asks for them."""

    def __init__(
        self, plans: Mapping[str, Schedule], cluster: Cluster, n: int, draws: Draws, known: dict[str, Makespans]
    ) -> None:
        self._plans, self._cluster, self._n, self._draws, self._known = plans, cluster, n, draws, known

    def __getitem__(self, name: str) -> Makespans:
        if name not in self._known:
            jitter, seed = self._draws.jitter, self._draws.seed
            self._known[name] = simulate_many(self._plans[name], self._cluster, self._n, jitter=jitter, rng=seed)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)
