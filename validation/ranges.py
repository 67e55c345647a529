"""How often 90 % ranges hold the measured value: published figures, and networks on an H100.

    python -m validation.ranges [--workers 2] [--log validation/ranges.json] [--figure docs/ranges.png]

Cases are the published speedups and latencies of `validation.published`, and the gains of streams and the times on one
captured stream of the networks of `validation.h100`. The errors of the model that ranges have without a calibration are
chosen from a grid: of those that hold nine tenths of the published speedups, or of all times, those of least score. A
paper, or a network on the H100, is judged by errors that were chosen without it; beside these stand those that are
shipped, and the best constant range, which was chosen on the cases themselves. A range scores its width, in logarithms,
and twenty times by how much it misses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import exp
from typing import Any, Final, NamedTuple

import numpy as np

import simsched as ss
from simsched.cli.options import Graph
from simsched.experiments.ranges import (
    MEASURED_COMMON,
    MODEL_ERRORS,
    Errors,
    Outcomes,
    outcomes,
    range_of,
    uncalibrated_errors,
)
from validation.evidence import each, keep, options
from validation.h100.figures import Case, constant_score, held, score
from validation.h100.networks import LIMITS, SAME, sources, unpacked
from validation.hardware.truth import Network, networks
from validation.published import Row, program, rows

SPEEDUPS = "published speedups"
LATENCIES = "published latencies"
GAINS = "gains of streams, H100"
TIMES = "one captured stream, H100"
RATIOS: Final = (SPEEDUPS, GAINS)
TOLERANCE: Final = 0.01
"""Part by which a gain on the H100 may lie out of its range, which is one number where nothing runs side by side."""
LEAST_HELD: Final = 90.0
"""Per cent of the published speedups, and of all times, that ranges are to hold where errors are chosen."""
OWN: Final = (0.06, 0.08, 0.1, 0.12)
GAIN: Final = (0.1, 0.2, 0.3, 0.4)
SHORTFALL: Final = (0.0, 0.1, 0.2, 0.3)
COMMON: Final = (0.0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


class Subject(NamedTuple):
    """A measured case, with its simulated values in all worlds.

    Parameters
    ----------
    kind
        One of the four kinds of cases.
    group
        The paper, or the network on the H100.
    name, measured
        Of the case, in us or as a ratio.
    known, program
        The outcomes in all worlds, and which of the programs it is.
    at_one
        Whether the batch is 1.
    shipped
        The errors of the model that ranges have on this cluster.
    """

    kind: str
    group: str
    name: str
    measured: float
    known: Outcomes
    program: int
    at_one: bool
    shipped: Errors

    def case(self, errors: Errors) -> Case:
        """Return the case with the range that it has with some errors of the model."""
        makespan, speedup = range_of(self.known, self.program, errors)
        point = float(self.known.points[self.program])
        if self.kind not in RATIOS:
            return Case(self.name, exp(point), self.measured, *makespan)
        assert speedup is not None
        return Case(self.name, exp(float(self.known.points[-1]) - point), self.measured, *speedup)


def of_row(row: Row) -> list[Subject]:
    """Return the case of a row of published numbers."""
    graph = Graph(f"{row.network},batch={row.batch}").read()
    cluster = ss.Cluster.preset(row.gpu)
    programs = {name: program(graph, cluster, name) for name in row.schedulers}
    known = outcomes(programs, cluster, reference=None if row.base is None else programs[row.base])
    assert known is not None
    measured = [(LATENCIES, row.latencies), (SPEEDUPS, row.speedups)]
    shipped = uncalibrated_errors(cluster)
    return [
        Subject(kind, row.paper, row.name(name), value, known, known.names.index(name), row.batch == 1, shipped)
        for kind, values in measured
        for name, value in values.items()
    ]


def of_network(job: tuple[Network, str]) -> list[Subject]:
    """Return the case of a network on the H100, which is read from a GRAPH of the command line."""
    network, source = job
    graph = Graph(source, None, network.dtype).read()
    cluster = ss.Cluster.preset("h100")
    one = ss.schedule(graph, cluster, "sequential").like(execution="graph").lower(cluster)
    nimble = ss.schedule(graph, cluster, "nimble").lower(cluster)
    known = outcomes({"one": one, "nimble": nimble}, cluster, reference=one)
    assert known is not None
    at_one = network.batch == 1
    shipped = uncalibrated_errors(cluster)
    return [
        Subject(TIMES, network.name, network.key, network.captured, known, 0, at_one, shipped),
        Subject(GAINS, network.name, network.key, network.gains[max(LIMITS)], known, 1, at_one, shipped),
    ]


def subjects(workers: int = 1) -> list[Subject]:
    """Return all cases."""
    with unpacked() as folder:
        jobs = [
            (network, source)
            for network in networks().values()
            for way, source in sources(network, folder)
            if way == SAME
        ]
        measured = each(of_network, jobs, workers)
    published = each(of_row, rows(), workers)
    return [subject for some in (*published, *measured) for subject in some]


class Scored(NamedTuple):
    """Cases with the scores of each choice of errors, shape (n_cases,) each."""

    scores: Mapping[Errors, np.ndarray]
    holds: Mapping[Errors, np.ndarray]


def scored(some: Sequence[Subject], choices: Iterable[Errors]) -> Scored:
    """Return the scores of cases with each of some errors of the model."""
    cases = {errors: [subject.case(errors) for subject in some] for errors in choices}
    tolerances = [_tolerance(subject.kind) for subject in some]
    return Scored(
        {errors: np.array([score([case]) for case in row]) for errors, row in cases.items()},
        {
            errors: np.array([case.holds(by) for case, by in zip(row, tolerances, strict=True)])
            for errors, row in cases.items()
        },
    )


def best(known: Scored, used: np.ndarray, must_hold: np.ndarray) -> Errors:
    """Return the errors of least score on the cases used; of those that hold enough of some, if any do."""
    able = [errors for errors, holds in known.holds.items() if 100 * holds[used & must_hold].mean() >= LEAST_HELD]
    return min(able or known.scores, key=lambda errors: float(known.scores[errors][used].mean()))


def _tolerance(kind: str) -> float:
    return TOLERANCE if kind == GAINS else 0.0


def left_out(every: Sequence[Subject], choose: Callable[[np.ndarray], Errors]) -> tuple[list[Case], dict[str, Errors]]:
    """Return each case with the range by errors that were chosen without its group, and these errors by group."""
    groups = np.array([f"{subject.kind in (GAINS, TIMES)} {subject.group}" for subject in every])
    chosen = {group: choose(groups != group) for group in dict.fromkeys(groups.tolist())}
    cases = [subject.case(chosen[group]) for subject, group in zip(every, groups.tolist(), strict=True)]
    return cases, {group.partition(" ")[2]: errors for group, errors in chosen.items()}


def judged(every: Sequence[Subject]) -> tuple[dict[str, Any], dict[str, list[Case]]]:
    """Return the summary of the ranges, and by kind the cases with ranges that had no part in the choice."""
    ratios = [subject for subject in every if subject.kind in RATIOS]
    published = np.array([subject.kind == SPEEDUPS for subject in ratios])
    of_ratios = scored(ratios, [Errors(own, 0.0, gain, part) for own, gain, part in product(OWN, GAIN, SHORTFALL)])
    choose = partial(best, of_ratios, must_hold=published)
    by_ratios = choose(np.ones(len(ratios), bool))
    told: dict[str, Any] = {
        "shipped": MODEL_ERRORS._asdict(),
        "shipped for the generation that was measured": {"common": MEASURED_COMMON},
        "chosen on all": by_ratios._asdict(),
    }
    choices = [(ratios, choose)]
    for kind in (LATENCIES, TIMES):
        times = [subject for subject in every if subject.kind == kind]
        of_times = scored(times, [Errors(by_ratios.own, common) for common in COMMON])
        choose = partial(best, of_times, must_hold=np.ones(len(times), bool))
        told["chosen on all"][f"common, {kind}"] = choose(np.ones(len(times), bool)).common
        choices.append((times, choose))
    drawn: dict[str, list[Case]] = {}
    for some, chooser in choices:
        cases, chosen = left_out(some, chooser)
        told["chosen without"] = told.get("chosen without", {}) | {
            f"{name}: {'ratios' if some is ratios else 'times'}": errors._asdict() for name, errors in chosen.items()
        }
        for kind in dict.fromkeys(subject.kind for subject in some):
            of_kind = [i for i, subject in enumerate(some) if subject.kind == kind]
            shipped = [some[i].case(some[i].shipped) for i in of_kind]
            drawn[kind] = [cases[i] for i in of_kind]
            at_one = [case for i, case in zip(of_kind, shipped, strict=True) if some[i].at_one]
            at_one_out = [cases[i] for i in of_kind if some[i].at_one]
            by = _tolerance(kind)
            told[kind] = {
                "cases": len(of_kind),
                "held, left out, %": held(drawn[kind], by),
                "held at batch 1, left out, %": held(at_one_out, by),
                "score, left out": score(drawn[kind]),
                "held, shipped, %": held(shipped, by),
                "held at batch 1, shipped, %": held(at_one, by),
                "score, shipped": score(shipped),
                "score of the best constant": constant_score(shipped),
                "points outside": sum(not (case.low or 0) <= case.predicted <= (case.high or 0) for case in shipped),
            }
    return told, drawn


def draw(drawn: Mapping[str, Sequence[Case]], told: Mapping[str, Any], path: str) -> None:
    """Draw each range relative to the simulated value, from the lowest measured value on, and the measured values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.8), layout="constrained")
    for (kind, cases), ax in zip(drawn.items(), figure.subplots(2, 2).flat, strict=True):
        ordered = sorted(cases, key=lambda case: -case.error)
        at = range(len(ordered))
        lows, highs = (
            [(end or 1.0) / case.predicted for case, end in zip(ordered, ends, strict=True)]
            for ends in ([case.low for case in ordered], [case.high for case in ordered])
        )
        ax.vlines(at, lows, highs, color="#9ab", lw=1.5)
        ax.plot(at, [case.measured / case.predicted for case in ordered], ".", color="#b22", ms=4)
        ax.axhline(1.0, color="#444", lw=0.8)
        ax.set_yscale("log")
        ax.set_yticks([0.25, 0.5, 1.0, 2.0, 4.0], ["1/4", "1/2", "1", "2", "4"])
        ax.minorticks_off()
        ax.set_ylabel("over simulated", fontsize=9)
        row = told[kind]
        ax.set_title(
            f"{kind}: {row['held, left out, %']:.0f} % held\nscore {row['score, left out']:.2f}, "
            f"best constant {row['score of the best constant']:.2f}",
            fontsize=9,
        )
    figure.supxlabel("bars: ranges with 90 %, their paper or network left out; dots: measured", fontsize=10)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the ranges, print the summary, and keep it."""
    given = options(__doc__, arguments, workers=2, log=None, figure=None)
    told, drawn = judged(subjects(given.workers))
    for name, row in told.items():
        print(name, *(f"  {key}: {value}" for key, value in row.items()), sep="\n")
    if given.figure:
        draw(drawn, told, given.figure)
    if given.log:
        keep(given.log, {"simsched": ss.__version__} | told)


if __name__ == "__main__":
    main()
