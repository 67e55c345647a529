"""Whether an operator or a graph is the one that was measured: others may have the same names."""

from math import isclose
from typing import Final

from simsched.base.errors import CalibrationError
from simsched.model.graph import Operator, OpGraph

SYNTH: Final = "synth"
"""Kind of what backends run in place of an operator that says nothing of its kernels."""

_CLOSE: Final = 1e-9  # part of a time: through other units and back


def same_time(time: float | None, *known: float | None) -> bool:
    """Return whether a time in us is one of those known, or none is said."""
    return time is None or any(other is not None and isclose(time, other, rel_tol=_CLOSE) for other in known)


def is_made_of(ran: Operator, op: Operator) -> bool:
    """Return whether `ran` can be what a backend made of an operator of its name, whatever their times are.

    Shapes and attributes say what an operator does. Where they are not known, synthetic ones are told by their FLOP, or
    by their time and utilization: FLOP are other ones where a backend measures its rates in each process.
    """
    shapes = [(o.input_shapes, o.output_shape, o.attributes) for o in (ran, op)]
    if shapes[0] != shapes[1]:
        return False
    if ran.kind == SYNTH and op.kind != SYNTH:
        return ran.utilization == op.utilization
    if ran.kind != op.kind or op.output_shape is not None or op.kind != SYNTH:
        return ran.kind == op.kind
    alike = op.time is not None and same_time(op.time, ran.time) and ran.utilization == op.utilization
    return alike or ran.flops == op.flops


def require_same(measured: OpGraph, graph: OpGraph, what: str) -> None:
    """Refuse what was measured of another graph than the one given, which may be as it was before it was realised.

    Raises
    ------
    CalibrationError
        If operators have other names, read from others, or one cannot have become the one that was measured.
    """
    if measured is graph:
        return
    why = None
    if measured.names != graph.names:
        foreign = next((name for name in measured.names if name not in graph.index), None)
        missing = next((name for name in graph.names if name not in measured.index), None)
        why = f"operator {foreign!r} is not in it" if foreign else f"it has no operator {missing!r}"
        if foreign is None and missing is None:
            why = "its operators are in another order"
    elif sorted((e.src, e.dst) for e in measured.edges) != sorted((e.src, e.dst) for e in graph.edges):
        why = "other operators read from each other"
    else:
        for ran, op in zip(measured.operators, graph.operators, strict=True):
            stands_in = ran.kind == SYNTH and op.kind != SYNTH and op.output_shape is None
            shortened = ran.time is not None and op.time is not None and ran.time < op.time * (1 - _CLOSE)
            if not is_made_of(ran, op) or (stands_in and shortened):  # where blocks cannot be short, it ran longer
                why = f"operator {op.name!r} is another one"
                break
    if why is not None:
        raise CalibrationError(
            f"{what} is of another graph than {graph.name!r}: {why}; profile the graph that is to run"
        )
