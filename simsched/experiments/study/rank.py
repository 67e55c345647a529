"""`rank`: which scheduler of a study wins, by how much, and whether that may be chance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any, Final, cast
from warnings import catch_warnings, simplefilter

import numpy as np

from simsched.base.errors import StudyError, UnknownNameError
from simsched.base.io import write_file
from simsched.base.numeric import is_number
from simsched.base.units import TIE
from simsched.base.views import VIEWS
from simsched.experiments.result import Result, TextTable, table_of
from simsched.experiments.study.columns import column_of
from simsched.experiments.study.study import text_of
from simsched.experiments.study.tex import booktabs
from simsched.model import Floats

Row = Mapping[str, Any]

METRICS: Final[Mapping[str, str]] = {"makespan": "makespan_us", "speedup": "speedup", "search_s": "wall.search_s"}
"""What schedulers may be ranked by, and the columns of it."""
LEVEL: Final = 0.05
"""Probability of an error of the first kind, of all tests."""
_RESAMPLES: Final = 2000
_EXACT: Final = 50  # differences up to which the distribution of signed ranks is counted out
_BLOCK: Final = ("workload.", "cluster.", "simulation.")
_SHOWN: Final = 1e-4  # smaller p-values are shown as this bound


@dataclass(frozen=True, slots=True)
class Rank:
    """Statistics of a scheduler over the complete blocks of a group.

    Parameters
    ----------
    scheduler
        Its label in the study.
    wins, shared
        Blocks in which it alone was best, and in which it was as good as another best one.
    mean_rank
        Mean of its ranks, 1 for the best; equal values share the mean of their ranks.
    to_best
        Geometric mean of its cost over the least of the block.
    to_baseline, low, high
        Geometric mean of its cost over the baseline's, and the ends of the 95 % bootstrap interval.
    p
        p-value of the Wilcoxon test against the scheduler of least mean rank, corrected by Holm over all pairs of the
        group; None for that scheduler.
    no_result
        Blocks of the group, complete or not, in which it has no result.
    """

    scheduler: str
    wins: int
    shared: int
    mean_rank: float | None
    to_best: float | None
    to_baseline: float | None
    low: float | None
    high: float | None
    p: float | None
    no_result: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two schedulers in the complete blocks of a group.

    Parameters
    ----------
    first, second
        Their labels, in the order of the study.
    wins, losses, ties
        Blocks in which the first was better, worse, or as good.
    ratio
        Geometric mean of the first one's cost over the second one's.
    p, p_holm
        p-value of the two-sided Wilcoxon signed-rank test on the logarithms of their ratios, and the same corrected
        over all pairs.
    """

    first: str
    second: str
    wins: int
    losses: int
    ties: int
    ratio: float
    p: float
    p_holm: float


@dataclass(frozen=True, eq=False)
class Group:
    """Schedulers in blocks that have some columns in common.

    Parameters
    ----------
    by
        These columns, with their values.
    blocks, complete
        How many blocks there are, and in how many of them every scheduler has a result.
    rows
        One row per scheduler, from the least mean rank; on ties in the order of the study.
    pairs
        All pairs of schedulers; none without a complete block.
    friedman
        Statistic and p-value of the test that all mean ranks are equal; None with less than three schedulers.
    critical_difference
        Difference of two mean ranks that is significant by Nemenyi; None without a complete block.
    cliques
        Largest sets of two or more schedulers that are not significantly different, from least mean rank.
    ratios
        ``(blocks, schedulers)``: cost over the least of the block, of all blocks with a result, infinite where there
        is none; columns are as `rows`.
    """

    by: Mapping[str, Any]
    blocks: int
    complete: int
    rows: tuple[Rank, ...]
    pairs: tuple[Pair, ...]
    friedman: tuple[float, float] | None
    critical_difference: float | None
    cliques: tuple[tuple[str, ...], ...]
    ratios: Floats = field(repr=False)


@dataclass(frozen=True, repr=False, eq=False)
class Ranking(Result):
    """Ranking of a study's schedulers; prints as a table, plots performance profiles above critical differences.

    Parameters
    ----------
    name, metric, baseline
        The study's name, the compared column, and the scheduler that ratios are relative to.
    groups
        One for each value of the columns that were asked for; one of all if none were.
    without_rows
        Schedulers of the study that have no row yet, and are not ranked.
    """

    VIEW = "ranking"

    name: str
    metric: str
    baseline: str
    groups: tuple[Group, ...]
    without_rows: tuple[str, ...] = ()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of all groups as plain values by column."""
        return [{**group.by, **_plain(row)} for group in self.groups for row in group.rows]

    def pair_records(self) -> list[dict[str, Any]]:
        """Return the pairs of all groups as plain values by column."""
        return [{**group.by, **_plain(pair)} for group in self.groups for pair in group.pairs]

    def table(self) -> TextTable:
        """Return the rows of all groups as a table of texts."""
        headings = [*self._headings(), "no result"]
        cells = [
            (*(text_of(value) for value in group.by.values()), *_cells(row))
            for group in self.groups
            for row in group.rows
        ]
        title = f"{self.name}: schedulers by {self.metric}"
        return table_of(title, headings, cells, note=self.notes(), left=range(len(self.groups[0].by) + 1))

    def _headings(self) -> list[str]:
        """Return the headings of the columns that the table and LaTeX share."""
        return [
            *(name.rpartition(".")[2] for name in self.groups[0].by),
            "scheduler",
            "wins",
            "shared",
            "mean rank",
            "to best",
            f"to {self.baseline}",
            "95 %",
            "p (Holm)",
        ]

    def pairs_table(self) -> TextTable:
        """Return the pairs of all groups as a table of texts."""
        names = list(self.groups[0].by)
        headings = [
            *(name.rpartition(".")[2] for name in names),
            "first",
            "second",
            "wins",
            "losses",
            "ties",
            "ratio",
            "p",
            "p (Holm)",
        ]
        cells = [
            (
                *(text_of(value) for value in group.by.values()),
                pair.first,
                pair.second,
                str(pair.wins),
                str(pair.losses),
                str(pair.ties),
                _ratio(pair.ratio),
                _p(pair.p),
                _p(pair.p_holm),
            )
            for group in self.groups
            for pair in group.pairs
        ]
        note = "Wilcoxon signed-rank test, two-sided, on logarithms of ratios; blocks with a tie are left out of it"
        return table_of(f"{self.name}: pairs by {self.metric}", headings, cells, note=note, left=range(len(names) + 2))

    def notes(self) -> list[str]:
        """Return sentences on the blocks that were compared or left out, and on the tests over all schedulers."""
        cost = "1 / speedup" if self.metric == "speedup" else self.metric
        lines = [
            f"a block is an instance: workload, seed, cluster, simulation; costs are {cost}: less is better",
            f"ratios are geometric means; 95 %: bootstrap over blocks of the ratio to {self.baseline}; p: Wilcoxon "
            "against the first row",
        ]
        if self.without_rows:
            lines.append(f"without rows yet, and not ranked: {', '.join(self.without_rows)}")
        for group in self.groups:
            name = ", ".join(f"{key.rpartition('.')[2]} {text_of(value)}" for key, value in group.by.items())
            sentences = [f"{group.complete} of {group.blocks} blocks are complete, others are left out"]
            if group.complete == group.blocks:
                sentences = [f"all {group.blocks} blocks are complete"]
            if group.friedman is not None:
                sentences.append(f"Friedman chi2 {group.friedman[0]:.4g}, p {_p(group.friedman[1])}")
            if group.critical_difference is not None:
                sentences.append(f"mean ranks differ from {group.critical_difference:.3g} on (Nemenyi, {LEVEL:g})")
            lines.append("; ".join(sentences) if not name else f"{name}: {'; '.join(sentences)}")
        return lines

    def to_tex(self) -> str:
        """Return the table as LaTeX, for the package booktabs, with a rule between groups.

        A comment above it has the sentences of `notes`.
        """
        groups = [
            [
                (
                    *(text_of(value) for value in group.by.values()),
                    row.scheduler,
                    *(cell.replace("-", "--") for cell in _cells(row)[1:-1]),  # ranges, and missing values
                )
                for row in group.rows
            ]
            for group in self.groups
        ]
        return booktabs(
            self._headings(),
            groups,
            n_left=len(self.groups[0].by) + 1,
            comments=[f"{self.name}, {self.metric}", *self.notes()],
        )

    def plot(self, path: Any = None) -> Any:
        """Draw profiles and critical differences of all groups, to a file if a path is given; return the figure.

        A performance profile shows for each factor in how many blocks a scheduler is within that factor of the best; a
        scheduler without a result is within none. Below it mean ranks are points on a line, and bars join ranks that
        Nemenyi's test does not distinguish.

        Raises
        ------
        StudyError
            If no block has a result.
        FileError
            If the suffix is not known or the file cannot be written.
        """
        return VIEWS["ranking"](self, path)

    def save_tex(self, path: str | Path) -> None:
        """Write `to_tex` to a file."""
        write_file(path, self.to_tex())


def _plain(row: Rank | Pair) -> dict[str, Any]:
    return {name: getattr(row, name) for name in type(row).__slots__}


def _cells(row: Rank) -> tuple[str, ...]:
    if row.low is None or row.high is None:
        interval = "-"
    else:
        interval = f"{_ratio(row.low)}-{_ratio(row.high)}"
    if row.mean_rank is None:
        rank = "-"
    else:
        rank = f"{row.mean_rank:.2f}"
    return (
        row.scheduler,
        str(row.wins),
        str(row.shared or "-"),
        rank,
        _ratio(row.to_best),
        _ratio(row.to_baseline),
        interval,
        _p(row.p),
        str(row.no_result or "-"),
    )


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 100:
        return f"{value:.3f}"
    return f"{value:.3g}"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    if value < _SHOWN:
        return f"<{_SHOWN:g}"
    return f"{value:.2g}"


def rank(
    name: str,
    rows: Sequence[Row],
    schedulers: Sequence[str],
    *,
    by: Sequence[str] = (),
    metric: str = "makespan",
    baseline: str | None = None,
    rng: np.random.Generator | int = 0,
) -> Ranking:
    """Rank the schedulers of a study.

    Parameters
    ----------
    name, rows, schedulers
        The study's name, its rows, and the labels of its schedulers in their order.
    by
        Columns, or their last parts: there is a group for each of their values, in the order of the rows.
    metric
        One of `METRICS`. A speedup counts as its inverse, so that less is always better.
    baseline
        Label of the scheduler that ratios are to; by default ``sequential`` if it is among them, else the first.
    rng
        Draws the blocks of the bootstrap.

    Raises
    ------
    StudyError
        If there are no rows, or a column, the metric or the baseline is not known.

    Notes
    -----
    A block is the rows with the same input: workload, seed, cluster and simulation. Ranks, ratios and tests take
    complete blocks, in which every scheduler has a positive value: rows that were refused, failed, ran out of time or
    are missing leave their block out, and are counted. Profiles [1]_ take all blocks with a result.

    Values within 1e-9 of each other are equal. The tests are the ones that Demšar [2]_ recommends. Friedman's compares
    ranks. Wilcoxon's is two-sided, of differences of logarithms other than 0; exact for up to 50 of them without equal
    sizes, else by the normal distribution; corrected by Holm [3]_ over the pairs of a group. Nemenyi's critical
    difference is at 5 %. Blocks count as independent; blocks of one graph on several clusters are less than that. The
    interval is between the 2.5th and the 97.5th percentile of 2000 resamples of the blocks.

    References
    ----------
    .. [1] Dolan, Moré, "Benchmarking optimization software with performance profiles", Mathematical Programming 91,
       2002, doi:10.1007/s101070100263.
    .. [2] Demšar, "Statistical comparisons of classifiers over multiple data sets", Journal of Machine Learning
       Research 7, 2006.
    .. [3] Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.
    """
    if metric not in METRICS:
        raise StudyError(str(UnknownNameError("metric", metric, list(METRICS))))
    if not rows:
        raise StudyError(f"{name}: there are no rows to rank yet; run the study first")
    labels = [label for label in schedulers if any(row["scheduler"] == label for row in rows)]
    if baseline is not None:
        base = baseline
    elif "sequential" in labels:
        base = "sequential"
    else:
        base = labels[0]
    if base not in labels:
        raise StudyError(str(UnknownNameError("baseline", base, labels)))
    rng = np.random.default_rng(rng)
    columns = [column_of(column, rows, "rank") for column in by]
    grouped: dict[str, tuple[dict[str, Any], list[Row]]] = {}
    for row in rows:
        values = {column: row.get(column) for column in columns}
        grouped.setdefault(json.dumps(list(values.values())), (values, []))[1].append(row)
    groups = [
        _group(values, _costs(members, labels, METRICS[metric], metric == "speedup"), labels, labels.index(base), rng)
        for values, members in grouped.values()
    ]
    return Ranking(name, metric, base, tuple(groups), tuple(label for label in schedulers if label not in labels))


def _costs(rows: Sequence[Row], labels: Sequence[str], column: str, inverse: bool) -> Floats:
    """Return the costs ``(blocks, schedulers)``, infinite where a result is missing or not above 0."""
    blocks: dict[str, dict[str, float]] = {}
    for row in rows:
        block = json.dumps([row["unit"], *((k, v) for k, v in sorted(row.items()) if k.startswith(_BLOCK))])
        value: Any = row.get(column)
        row_costs = blocks.setdefault(block, {})
        if row["status"] == "ok" and is_number(value) and value > 0:
            row_costs[row["scheduler"]] = 1 / value if inverse else float(value)
    costs = [[row_costs.get(label, np.inf) for label in labels] for row_costs in blocks.values()]
    return np.array(costs, dtype=np.float64).reshape(len(blocks), len(labels))


def _group(by: Mapping[str, Any], costs: Floats, labels: Sequence[str], base: int, rng: np.random.Generator) -> Group:
    n_schedulers = len(labels)
    no_result = np.isinf(costs).sum(axis=0).tolist()
    some = costs[np.isfinite(costs).any(axis=1)]
    complete = costs[np.isfinite(costs).all(axis=1)]
    n = len(complete)
    if n == 0:
        rows = [Rank(label, 0, 0, None, None, None, None, None, None, no_result[i]) for i, label in enumerate(labels)]
        return Group(by, len(costs), 0, tuple(rows), (), None, None, (), some / some.min(axis=1, keepdims=True))
    levelled = _level(complete)
    is_best = levelled == levelled.min(axis=1, keepdims=True)
    alone = is_best & (is_best.sum(axis=1, keepdims=True) == 1)
    ranks = ranks_of(levelled)
    mean_ranks = ranks.mean(axis=0)
    logs = np.log(levelled)
    to_best = np.exp((logs - logs.min(axis=1, keepdims=True)).mean(axis=0))
    to_baseline = np.exp((logs - logs[:, [base]]).mean(axis=0))
    low, high = _interval(logs - logs[:, [base]], rng)
    pairs = _pairs(logs, labels)
    order = sorted(range(n_schedulers), key=lambda i: mean_ranks[i])
    first = labels[order[0]]
    against = {
        pair.second if pair.first == first else pair.first: pair.p_holm
        for pair in pairs
        if first in (pair.first, pair.second)
    }
    rows = [
        Rank(
            scheduler=labels[i],
            wins=int(alone[:, i].sum()),
            shared=int((is_best & ~alone)[:, i].sum()),
            mean_rank=float(mean_ranks[i]),
            to_best=float(to_best[i]),
            to_baseline=float(to_baseline[i]),
            low=float(low[i]),
            high=float(high[i]),
            p=against.get(labels[i]),
            no_result=no_result[i],
        )
        for i in order
    ]
    difference = None
    cliques: tuple[tuple[str, ...], ...] = ()
    if n_schedulers >= 2:
        difference = critical_difference(n_schedulers, n)
        cliques = cliques_of([(row.scheduler, row.mean_rank or 0.0) for row in rows], difference)
    ratios = some / some.min(axis=1, keepdims=True)
    return Group(by, len(costs), n, tuple(rows), pairs, friedman(ranks), difference, cliques, ratios[:, order])


def _level(costs: Floats) -> Floats:
    """Return positive numbers, with nearly equal ones in a row made equal."""
    order = np.argsort(costs, axis=1, kind="stable")
    ascending = np.take_along_axis(costs, order, axis=1)
    for i in range(1, costs.shape[1]):
        is_same = ascending[:, i] <= ascending[:, i - 1] * (1 + TIE)
        ascending[is_same, i] = ascending[is_same, i - 1]
    levelled = np.empty_like(costs)
    np.put_along_axis(levelled, order, ascending, axis=1)
    return levelled


def ranks_of(costs: Floats) -> Floats:
    """Return the ranks in each row, 1 for the least; equal ones share the mean of theirs.

    >>> ranks_of(np.array([[3.0, 1.0, 3.0]]))
    array([[2.5, 1. , 2.5]])
    """
    from scipy.stats import rankdata

    return cast("Floats", rankdata(costs, axis=1))


def _interval(logs: Floats, rng: np.random.Generator) -> Floats:
    """Return the ends ``(2, schedulers)`` of the bootstrap interval of geometric means, of logarithms by block."""
    n = len(logs)
    means = np.empty((_RESAMPLES, logs.shape[1]))
    for i in range(_RESAMPLES):
        means[i] = np.bincount(rng.integers(n, size=n), minlength=n) @ logs / n
    return cast("Floats", np.exp(np.percentile(means, [2.5, 97.5], axis=0)))


def _pairs(logs: Floats, labels: Sequence[str]) -> tuple[Pair, ...]:
    several = list(combinations(range(len(labels)), 2))
    tests = [wilcoxon(logs[:, i] - logs[:, j]) for i, j in several]
    return tuple(
        Pair(
            labels[i],
            labels[j],
            int((logs[:, i] < logs[:, j]).sum()),
            int((logs[:, i] > logs[:, j]).sum()),
            int((logs[:, i] == logs[:, j]).sum()),
            float(np.exp((logs[:, i] - logs[:, j]).mean())),
            p,
            corrected,
        )
        for (i, j), p, corrected in zip(several, tests, holm(tests), strict=True)
    )


def wilcoxon(differences: Floats) -> float:
    """Return the two-sided p-value of the Wilcoxon signed-rank test; 1 if no difference is other than 0.

    >>> wilcoxon(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == 2 / 2**5
    True
    """
    from scipy import stats

    nonzero = differences[differences != 0]
    if len(nonzero) == 0:
        return 1.0
    # 20 / 10 and 30 / 15 are one ratio, whatever the last bit of their logarithms
    sizes = _level(np.abs(nonzero)[None, :])[0]
    nonzero = np.copysign(sizes, nonzero)
    if len(nonzero) <= _EXACT and len(np.unique(sizes)) == len(nonzero):
        return float(stats.wilcoxon(nonzero, method="exact").pvalue)
    try:
        return float(stats.wilcoxon(nonzero, method="asymptotic").pvalue)
    except ValueError:  # scipy before 1.15 has another name for it, and a warning for few differences
        with catch_warnings():
            simplefilter("ignore", UserWarning)
            return float(stats.wilcoxon(nonzero, method="approx").pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm for being several.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p)
    largest = 0.0
    for position, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - position) * p[i]))
        corrected[i] = largest
    return corrected


def friedman(ranks: Floats) -> tuple[float, float] | None:
    """Return chi2 and p-value of Friedman's test of ranks ``(blocks, schedulers)``; None of less than three."""
    from scipy.stats import friedmanchisquare

    if ranks.shape[1] < 3:
        return None
    if (ranks == ranks[:, :1]).all():  # 0 / 0
        return 0.0, 1.0
    test = friedmanchisquare(*ranks.T)
    return float(test.statistic), float(test.pvalue)


def critical_difference(n_schedulers: int, n_blocks: int) -> float:
    """Return the least difference of two mean ranks that is significant at 5 %, by Nemenyi.

    >>> round(critical_difference(4, 14), 2)  # as Demšar has it
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - LEVEL, n_schedulers, np.inf)) / sqrt(2)
    return q * sqrt(n_schedulers * (n_schedulers + 1) / (6 * n_blocks))


def cliques_of(ranked: Sequence[tuple[str, float]], difference: float) -> tuple[tuple[str, ...], ...]:
    """Return the largest runs of two or more names, from least mean rank, that differ by less than a difference.

    >>> cliques_of([("a", 1.0), ("b", 1.5), ("c", 2.2), ("d", 4.0)], 1.0)
    (('a', 'b'), ('b', 'c'))
    """
    runs: list[tuple[int, int]] = []
    for start, (_, low) in enumerate(ranked):
        end = max(i for i, (_, value) in enumerate(ranked) if i >= start and (i == start or value - low < difference))
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return tuple(tuple(name for name, _ in ranked[start : end + 1]) for start, end in runs)
