"""`sensitivity`: how much the makespan responds to each parameter."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any, Final

from simsched.base.codec import Checked
from simsched.base.errors import WhatIfError
from simsched.base.units import format_time
from simsched.experiments.result import Finding, table_of
from simsched.experiments.whatif.changes import PARAMETERS, absolute, with_unit
from simsched.experiments.whatif.question import Question, value_of
from simsched.experiments.whatif.world import Ground
from simsched.model import Schedule, Target

_LEAST: Final = 1e-9  # elasticities and changes below this are none
_STEP, _SWING = 0.01, 0.2  # parts by which parameters are moved: for elasticities, and for lows and highs


@dataclass(frozen=True, slots=True)
class Elasticity(Checked):
    """How the makespan responds to one parameter.

    Parameters
    ----------
    parameter
        Its name.
    value
        What it is, in library units; None where it is not one number.
    elasticity
        Per cent that the makespan changes by when the parameter grows by one per cent.
    low_us, high_us
        Makespans in us with the parameter at its low and its high.
    low, high
        The low and the high as factors of what it is.
    """

    SUBJECT, ERROR = "parameter {0.parameter}", WhatIfError
    parameter: str
    value: float | None
    elasticity: float
    low_us: float
    high_us: float
    low: float
    high: float


@dataclass(frozen=True, repr=False, eq=False)
class Sensitivity(Finding):
    """How the makespan responds to every parameter; prints as a table, plots as a tornado chart.

    Bars of the chart reach from the makespan at the low to that at the high of the parameter, around the makespan as
    it is; the side of the low is hatched. Parameters that move nothing are left out, and all behind the first fifteen.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    rows
        By falling size of their elasticity.
    base_us
        Makespan in us with all parameters as they are.
    notes
        Parameters left out, with the reason.
    """

    FORMAT = "simsched.sensitivity"
    rows: tuple[Elasticity, ...]
    base_us: float
    notes: tuple[str, ...] = ()

    def __getitem__(self, parameter: str) -> Elasticity:
        """Return the row of a parameter."""
        found = next((row for row in self.rows if row.parameter == parameter), None)
        if found is None:
            raise WhatIfError(f"there is no row of {parameter!r}: name it in `parameters`")
        return found

    def moving(self) -> list[Elasticity]:
        """Return the rows of parameters that move the makespan."""
        least = _LEAST * self.base_us
        return [
            row
            for row in self.rows
            if abs(row.elasticity) > _LEAST or max(abs(us - self.base_us) for us in (row.low_us, row.high_us)) > least
        ]

    def table(self) -> Any:
        """Return the rows that move the makespan as a table of texts."""
        moving = self.moving()
        rows = [
            (row.parameter, "-" if row.value is None else with_unit(row.parameter, row.value), f"{row.elasticity:+.4f}",
             f"{row.low:.3g} .. {row.high:.3g}", f"{format_time(row.low_us)} .. {format_time(row.high_us)}")
            for row in moving
        ]  # fmt: skip
        still = len(self.rows) - len(moving)
        notes = [f"makespan {format_time(self.base_us)}", *self.notes]
        if still:
            notes.insert(1, f"{still} more change nothing")
        headings = ("parameter", "value", "elasticity", "factors", "makespan")
        return table_of(f"{self.graph} on {self.cluster}", headings, rows, note="\n".join(notes))


def sensitivity(
    plan_or_whatif: Schedule | Question, cluster: Target | None = None, *, parameters: Sequence[str] | None = None,
    per_operator: bool = False,
) -> Sensitivity:  # fmt: skip
    """Return the elasticity of the makespan to every parameter, ranked.

    Parameters
    ----------
    plan_or_whatif, cluster
        A schedule and what it runs on, or a question, which brings its own.
    parameters
        Names as `WhatIf.set` takes them, of those that take factors; by default all that are neither zero nor infinite.
    per_operator
        Whether each operator's speed is a parameter, too.

    Returns
    -------
    Sensitivity
        Rows by falling size of the elasticity, equal ones in the order of the parameters.

    Raises
    ------
    WhatIfError
        If the makespan is 0, a schedule comes without a cluster, or a parameter that was named cannot be moved or takes
        no factors.
    UnknownNameError
        If there is no such parameter, operator or kind.

    Notes
    -----
    The elasticity is (ln M+ - ln M-) / (ln f+ - ln f-), M the makespan and f the factors 1.01 and 0.99; lows and highs
    are at 0.8 and 1.2. Where the makespan has a kink - another operator comes to be the last, say - it lies between
    those of the two sides. Whole numbers, such as `sms`, move by at least 1; the factor that was really taken counts. A
    side that cannot be taken - more than the whole of a part - is replaced by the makespan as it is, the factor 1. A
    parameter that is 0 stays 0 under any factor: its elasticity is 0. Times, overheads, latencies and the inverse of
    rates together have an elasticity of 1: a world in which all of it takes twice as long takes twice as long. Four
    simulations per parameter.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> found = sensitivity(ss.schedule(graph, cluster, "lios"), cluster, per_operator=True)
    >>> [(row.parameter, round(row.elasticity, 3)) for row in found.rows[:3]]
    [('operators.speed', -1.0), ('operator.a.speed', -0.75), ('operator.b.speed', -0.25)]
    """
    asked = plan_or_whatif
    if isinstance(asked, Schedule):
        if cluster is None:
            raise WhatIfError("a schedule alone does not say what it runs on: give the cluster")
        asked = Question(Ground(asked, cluster))
    base = asked.makespan
    if not base > 0:
        raise WhatIfError(f"graph {asked.graph.name!r} takes no time: nothing can change that by a factor")
    names = numeric_parameters(asked, per_operator=per_operator) if parameters is None else tuple(parameters)
    rows: list[Elasticity] = []
    notes: list[str] = []
    for name in dict.fromkeys(names):
        points = [_moved(asked, name, part) for part in (-_STEP, _STEP, -_SWING, _SWING)]
        if all(isinstance(point, str) for point in points[:2]):
            if parameters is not None:
                raise WhatIfError(f"{name} cannot be moved: {points[0]}")
            notes.append(f"{name}: {points[0]}")
            continue
        below, above, low, high = ((1.0, base) if isinstance(point, str) else point for point in points)
        slope = log(above[1] / below[1]) / log(above[0] / below[0]) if above[0] > below[0] and below[1] > 0 else 0.0
        rows.append(Elasticity(name, value_of(asked, name), slope, low[1], high[1], low[0], high[0]))
    rows.sort(key=lambda row: -abs(row.elasticity))
    return Sensitivity(asked.graph.name, asked.cluster.name, tuple(rows), base, tuple(notes))


def numeric_parameters(asked: Question, *, per_operator: bool = False) -> tuple[str, ...]:
    """Return the names of the parameters of a question that take factors, but those that are zero or infinite.

    Parameters
    ----------
    asked
        The question.
    per_operator
        Whether each operator has a parameter of its own, too.

    Notes
    -----
    Left out is ``device.clock``, too, which is to the model what ``device.peak`` is.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100"))
    >>> numeric_parameters(asked)[:3]
    ('operators.speed', 'device.sms', 'device.threads_per_sm')
    """
    codes, kinds = asked.graph.labels("kind")
    used = [text for i, text in enumerate(kinds) if text is not None and (codes == i).any()]
    there = ["operators.speed", *(f"operators.{kind}.speed" for kind in used if len(used) > 1)]
    for name, known in PARAMETERS.items():
        values = known.values(asked.cluster)  # None where they differ
        if name != "device.clock" and any(value is None or 0 < value < inf for value in values):
            there.append(name)
    if per_operator:
        there += [f"operator.{name}.speed" for name in asked.graph.names if name in asked.plan.graph.index]
    return tuple(there)


def _moved(asked: Question, parameter: str, part: float) -> tuple[float, float] | str:
    """Return the factor that a parameter was moved by, and the makespan then, or why it cannot be moved."""
    factor, value = 1.0 + part, value_of(asked, parameter)
    new: Any = factor
    whole = parameter in PARAMETERS and PARAMETERS[parameter].whole
    if whole and value is not None and value > 0:
        least, moved = round(value) + (1 if part > 0 else -1), round(value * factor)
        moved = max(least, moved) if part > 0 else min(least, moved)
        if moved < 1:
            return f"it is {value:g}, and there can be no less of it"
        factor, new = moved / value, absolute(moved)
    found = asked.tried((parameter, new))
    return found if isinstance(found, str) else (factor, found)
