"""Published speedups and latencies beside the README's commands: ``python -m validation.published``.

    python -m validation.published [--workers 2] [--json FILE]

Each row of `published.toml` is simulated as ``simsched compare NETWORK,batch=N --gpu GPU --schedulers
NAMES`` does it, with the preset as it is shipped. "captured" is one operator after the other in a captured graph, as
`simsched advise` has it. Ranges are those that the commands print. No time alone was fitted to a row; the errors of the
model that ranges have were, see `validation.ranges`.
"""

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import simsched as ss
from simsched.base.io import dump_json, write_file
from simsched.base.units import MS
from simsched.cli.options import Graph
from simsched.experiments.ranges import ranges
from validation.evidence import each
from validation.h100.figures import (
    Case,
    Figure,
    Section,
    bias,
    by,
    constant_score,
    documents,
    held,
    mean_error,
    number,
    score,
)

TABLE: Final = Path(__file__).with_suffix(".toml")
BASES: Final = ("sequential", "captured")
_OPTIONS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "captured": ("sequential", {}),
    "ios-merge": ("ios", {"strategy": "merge"}),
    "ios-parallel": ("ios", {"strategy": "parallel"}),
}
"""Schedulers that are another one with options, by the names of the table."""
_PER_S: Final = 1e3  # ms


@dataclass(frozen=True, slots=True)
class Row:
    """A network that a paper measured on one GPU.

    Parameters
    ----------
    paper, where
        Of the numbers.
    gpu, network, batch
        Preset and workload.
    ms
        Latencies in ms by scheduler.
    images_per_s
        Throughputs by scheduler, of batches one after the other.
    relative
        Speedups by scheduler over something that is not simulated.
    """

    paper: str
    where: str
    gpu: str
    network: str
    batch: int = 1
    ms: Mapping[str, float] = field(default_factory=dict)
    images_per_s: Mapping[str, float] = field(default_factory=dict)
    relative: Mapping[str, float] = field(default_factory=dict)

    @property
    def latencies(self) -> Mapping[str, float]:
        """Published latencies in us by scheduler; empty where only speedups are published."""
        ms = self.ms or {name: _PER_S * self.batch / rate for name, rate in self.images_per_s.items()}
        return {name: time * MS for name, time in ms.items()}

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The schedulers with a published number."""
        return tuple(self.latencies or self.relative)

    @property
    def base(self) -> str | None:
        """Baseline of speedups; None where there is no speedup."""
        return next((name for name in BASES if name in self.schedulers), None)

    @property
    def speedups(self) -> Mapping[str, float]:
        """Published speedups over the base by scheduler."""
        if self.base is None:
            return {}
        times = self.latencies or {name: 1 / speedup for name, speedup in self.relative.items()}
        return {name: times[self.base] / time for name, time in times.items() if name != self.base}

    def name(self, scheduler: str) -> str:
        """Return the name of a number of the row."""
        return f"{self.paper}, {self.where}: {self.network} x{self.batch} on {self.gpu}, {scheduler}"


def rows() -> list[Row]:
    """Return the published numbers."""
    return [Row(**row) for row in tomllib.loads(TABLE.read_text("utf-8"))["row"]]


def predicted(row: Row) -> tuple[list[Case], list[Case]]:
    """Return the latencies in us and the speedups of a row, predicted and published."""
    graph = Graph(f"{row.network},batch={row.batch}").read()
    cluster = ss.Cluster.preset(row.gpu)
    programs = {name: program(graph, cluster, name) for name in row.schedulers}
    reference = None if row.base is None else programs[row.base]
    times = {name: ss.simulate(program, cluster).makespan for name, program in programs.items()}
    ranged = ranges(programs, cluster, reference=reference)[0]
    latencies = []
    speedups = []
    for name, published in row.latencies.items():
        low, high = ranged[name].makespan_low_us, ranged[name].makespan_high_us
        latencies.append(Case(row.name(name), times[name], published, low, high))
    for name, published in row.speedups.items():
        assert row.base is not None
        low_ratio, high_ratio = ranged[name].speedup_low, ranged[name].speedup_high
        speedups.append(Case(row.name(name), times[row.base] / times[name], published, low_ratio, high_ratio))
    return latencies, speedups


def program(graph: ss.OpGraph, cluster: ss.Cluster, name: str) -> ss.Program:
    """Return the launches of a scheduler of the table on a cluster."""
    scheduler, options = _OPTIONS.get(name, (name, {}))
    plan = ss.schedule(graph, cluster, scheduler, **options)
    return (plan.like(execution="graph") if name == "captured" else plan).lower(cluster)


def all_predicted(workers: int = 1) -> tuple[list[Case], list[Case]]:
    """Return the latencies and the speedups of all rows."""
    known = rows()
    longest_first = sorted(range(len(known)), key=lambda i: "ios" not in known[i].schedulers)
    outcomes = dict(zip(longest_first, each(predicted, [known[i] for i in longest_first], workers), strict=True))
    latencies = [case for i in range(len(known)) for case in outcomes[i][0]]
    speedups = [case for i in range(len(known)) for case in outcomes[i][1]]
    return latencies, speedups


def sections(latencies: Sequence[Case], speedups: Sequence[Case]) -> list[Section]:
    """Return the tables of speedups and latencies."""
    at_one = [case for case in speedups if " x1 " in case.name]
    above = [case for case in speedups if " x1 " not in case.name]
    figures = [
        Figure("published speedups: mean abs ln", mean_error(speedups), most=0.12),
        Figure("published speedups: bias", bias(speedups), -0.04, 0.04),
        Figure("published speedups, batch 1: mean abs ln", mean_error(at_one)),
        Figure("published speedups, batch 1: bias", bias(at_one)),
        Figure("published speedups, above batch 1: mean abs ln", mean_error(above)),
        Figure("published speedups, above batch 1: bias", bias(above)),
        Figure("ranges of published speedups hold, %", held(speedups), 88, 96),
        Figure("ranges of published speedups at batch 1 hold, %", held(at_one), least=85),
        Figure("ranges of published speedups: score", score(speedups)),
        Figure("ranges of published speedups: score of the best constant", constant_score(speedups)),
    ]
    ones = [case for case in latencies if " x1 " in case.name]
    more = [case for case in latencies if " x1 " not in case.name]
    latency_figures = [
        Figure("published latencies: mean abs ln", mean_error(latencies), most=0.22),
        Figure("published latencies: bias", bias(latencies)),
        Figure("published latencies, batch 1: mean abs ln", mean_error(ones)),
        Figure("published latencies, batch 1: bias", bias(ones)),
        Figure("published latencies, above batch 1: mean abs ln", mean_error(more)),
        Figure("published latencies, above batch 1: bias", bias(more)),
        Figure("ranges of published latencies hold, %", held(latencies), 88, 96),
    ]
    columns = ("published", "value", "predicted", "90 % range", "ln", "")
    return [
        Section(f"Published speedups ({len(speedups)})", figures, columns, _table(speedups, 1.0), _left_out(speedups)),
        Section(f"Published latencies ({len(latencies)}), ms", latency_figures, columns, _table(latencies, MS)),
    ]


def _left_out(cases: Sequence[Case]) -> tuple[str, ...]:
    """Return the mean error of each paper, and the gaps of the table."""
    papers = by(cases, lambda case: case.name.partition(",")[0])
    errors = [f"{paper} {number(mean_error(group))} ({number(bias(group))})" for paper, group in papers.items()]
    reasons: Mapping[str, str] = tomllib.loads(TABLE.read_text("utf-8"))["left_out"]
    left = [f"{what} ({why})" for what, why in reasons.items()]
    return f"By paper, mean abs ln (bias): {', '.join(errors)}.", f"Left out: {'; '.join(left)}."


def _table(cases: Sequence[Case], unit: float) -> list[tuple[object, ...]]:
    table: list[tuple[object, ...]] = []
    for case in cases:
        low, high = ("-", "-") if case.low is None else (f"{case.low / unit:.2f}", f"{(case.high or 0) / unit:.2f}")
        holds = case.low is None or case.holds()
        table.append(
            (
                case.name,
                f"{case.measured / unit:.2f}",
                f"{case.predicted / unit:.2f}",
                f"{low} to {high}",
                f"{case.error:+.2f}",
                "" if holds else "missed",
            )
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the figures and cases")
    options = parser.parse_args(arguments)
    tables = sections(*all_predicted(options.workers))
    for section in tables:
        print(*section.lines(), "", sep="\n")
    if options.json:
        write_file(options.json, dump_json(documents(tables)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
