"""`account_for`: compares a scheduler's schedule with the graph that it was given."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final, NoReturn

import numpy as np

from simsched.base.errors import GraphError, ScheduleError, brief_text
from simsched.model import Floats, Operator, OpGraph, Schedule
from simsched.model.graph.columns import COSTS, KERNELS, LABELS, Indices, gather_rows
from simsched.model.rewriting import Rewriting, Step
from simsched.rewriting.draft import GraphDraft
from simsched.rewriting.merging import MERGED, merge_draft
from simsched.rewriting.parts import part_of, put_together
from simsched.rewriting.rule import Rule
from simsched.rewriting.rules import RULES

_REMEDY: Final = "schedule the graph that is given, or say in `rewriting` how the other came about"
_NO_TRANSFER: Final = -1.0  # instead of NaN, which is like nothing


def account_for(plan: Schedule, graph: OpGraph, scheduler: str, rules: Iterable[Rule] = ()) -> Schedule:
    """Return a scheduler's schedule of a graph, if it runs the whole graph.

    Parameters
    ----------
    plan
        The schedule. Its graph is the given one, an equal one - operators and edges in any order, under any name of the
        graph - or the result of its `rewriting`.
    graph
        The graph that the scheduler was given.
    scheduler
        Its name, for errors.
    rules
        Substitution rules of the caller's that the scheduler was given; the library's rules are known by their names.

    Returns
    -------
    Schedule
        A schedule of the given graph object; or after rewriting, of a graph that equals the result of repeating the
        rewriting here. So no claim of a scheduler is relied on: operators are accounted for, outputs and their sizes
        kept, and FLOP and bytes come from the rules.

    Raises
    ------
    ScheduleError
        Naming the scheduler, and the first operator, or edge, that differs.

    Notes
    -----
    O(V + E), and O(V + E) more for each step of a rewriting; where the graph is the given one, only the placements are
    counted.
    """
    if type(plan) is not Schedule:
        plan = _plain(plan, scheduler)
    if len(plan.op) != len(plan.graph) or (np.bincount(plan.op, minlength=len(plan.graph)) != 1).any():
        raise ScheduleError(f"scheduler {scheduler!r} returned a schedule in which not every operator is placed once")
    if plan.graph is graph and not plan.rewriting:
        return plan
    expected = graph
    if plan.rewriting:
        try:
            expected = rewritten(graph, plan.rewriting, {**RULES, **{rule.name: rule for rule in rules}})
        except GraphError as error:
            raise ScheduleError(
                f"scheduler {scheduler!r} returned a schedule of another graph, and how it came about is wrong: {error}"
            ) from None
    place = _places(plan.graph, expected, scheduler)
    if plan.rewriting and type(plan.graph) is OpGraph and plan.graph.names == expected.names:
        return plan  # callers that compare graphs by identity see several schedules of one
    return plan.like(graph=expected, op=place[plan.op], estimate=plan.estimate)


@contextmanager
def refuse_changes(graph: OpGraph, scheduler: str) -> Iterator[None]:
    """Refuse a scheduler that changes columns of the graph that it is given within the block; they are put back.

    Raises
    ------
    ScheduleError
        Naming the scheduler and the column.

    Notes
    -----
    Values are not looked at: a column that was made writable counts as changed. O(1).
    """
    before = {key: value for key, value in graph.__dict__.items() if key not in graph.CACHED}
    try:
        yield
    finally:
        columns = graph.__dict__
        column = next((key for key, value in before.items() if columns.get(key) is not value), None)
        columns.update(before)
        arrays = {key: value for key, value in before.items() if isinstance(value, np.ndarray)}
        column = column or next((key for key, value in arrays.items() if value.flags.writeable), None)
        if column is not None:
            raise ScheduleError(
                f"scheduler {scheduler!r} changed the graph {graph.name!r} that it was given, its {column!r}: make a "
                "new one"
            )


def rewritten(graph: OpGraph, rewriting: Iterable[Rewriting], rules: Mapping[str, Rule] = RULES) -> OpGraph:
    """Return a graph after rewritings, one after the other.

    Parameters
    ----------
    rules
        By name.

    Raises
    ------
    GraphError
        If a rule is unknown, a step cannot be made, or the parts are not the graph's.
    """
    draft = GraphDraft.from_graph(graph)
    for one in rewriting:
        if len(one.parts) == 1 and not one.parts[0].operators:
            draft = _repeat_steps(draft, one.parts[0].steps, rules)
            continue
        named = [name for part in one.parts for name in part.operators]
        if len(named) != len(draft.rows) or set(named) != set(draft.rows):
            missing = next((name for name in draft.rows if name not in named), None)
            if missing is not None:
                why = f"{missing!r} is in none"
            else:
                why = "one is in two, or in none of the graph"
            raise GraphError(f"each operator must be in one of the parts: {why}")
        parts = [part_of(draft, part.operators) for part in one.parts]
        after = [
            _repeat_steps(part, rewritten_part.steps, rules)
            for part, rewritten_part in zip(parts, one.parts, strict=True)
        ]
        whole = put_together(draft, zip(parts, after, strict=True))
        if whole is None:
            raise GraphError("the parts do not fit together")
        draft = whole
    return draft.to_graph()


def _repeat_steps(draft: GraphDraft, steps: Iterable[Step], rules: Mapping[str, Rule]) -> GraphDraft:
    """Return a draft after some steps."""
    for step in steps:
        names = ", ".join(map(repr, step.operators))
        if step.rule == MERGED:
            draft, _ = merge_draft(draft, step.operators)
            continue
        if step.rule not in rules:
            raise GraphError(f"{step.rule!r} is no rule of simsched: rewrite the graph first, and schedule the new one")
        after = rules[step.rule].apply(draft, step.operators)
        if after is None:
            raise GraphError(f"rule {step.rule!r} cannot be applied to {names}")
        draft = after
    return draft


def _plain(plan: Schedule, scheduler: str) -> Schedule:
    """Return a schedule of a user's class as one of ours: other attributes of the class are not read."""
    try:
        return Schedule.from_columns(
            **{
                key: getattr(plan, key)
                for key in (
                    "graph",
                    "op",
                    "devices",
                    "device",
                    "stream",
                    "stage",
                    "group",
                    "priority",
                    "execution",
                    "estimate",
                    "scheduler",
                    "events",
                    "search",
                    "rewriting",
                )
            }
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ScheduleError(f"scheduler {scheduler!r} returned a schedule that cannot be: {error}") from None


def _places(other: OpGraph, graph: OpGraph, scheduler: str) -> Indices:
    """Return the index in a graph of each operator of another, shape (n_ops,), which must be the same but for order."""

    def refuse(text: str) -> NoReturn:
        raise ScheduleError(f"scheduler {scheduler!r} returned a schedule of another graph: {text}; {_REMEDY}")

    index = other.index
    for name in graph.names:
        if name not in index:
            refuse(f"operator {name!r} is missing")
    if len(other) != len(graph):
        extra = next(name for name in other.names if name not in graph.index)
        refuse(f"operator {extra!r} is none of {graph.name!r}")
    rows = np.array([index[name] for name in graph.names], np.int64)  # of the other graph, in the order of this one
    _compare_operators(other, graph, rows, refuse)
    _compare_edges(other, graph, rows, refuse)
    place = np.empty(len(rows), np.int64)
    place[rows] = np.arange(len(rows))
    return place


def _compare_operators(other: OpGraph, graph: OpGraph, rows: Indices, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse an operator that has other fields."""
    differs = other.intensity[rows] != graph.intensity
    for key in COSTS:
        theirs = getattr(other, key)[rows]
        ours = getattr(graph, key)
        differs |= (theirs != ours) & ~(np.isnan(theirs) & np.isnan(ours))
    for key in LABELS:
        number: dict[str | None, int] = {}
        theirs, ours = (
            np.array([number.setdefault(text, len(number)) for text in texts])[codes]
            for codes, texts in (other.labels(key), graph.labels(key))
        )
        differs |= theirs[rows] != ours
    sizes = np.diff(graph.kernel_ptr)
    fewer = np.diff(other.kernel_ptr)[rows] != sizes
    differs |= fewer
    if not fewer.any():
        _, kernels = gather_rows(np.diff(other.kernel_ptr), rows)
        unlike = np.logical_or.reduce([getattr(other, key)[kernels] != getattr(graph, key) for key in KERNELS])
        differs[np.repeat(np.arange(len(graph)), sizes)[unlike]] = True
    if other._details or graph._details:
        details = enumerate(rows.tolist())
        differs |= np.array([other._details.get(row) != graph._details.get(i) for i, row in details], np.bool_)
    for i in np.flatnonzero(differs).tolist():
        theirs = other.operator(int(rows[i]))
        ours = graph.operator(i)
        for name in (field.name for field in fields(Operator)):
            value = getattr(theirs, name)
            expected = getattr(ours, name)
            if value != expected:
                texts = (
                    brief_text(dict(value_) if isinstance(value_, Mapping) else value_) for value_ in (value, expected)
                )
                refuse(f"operator {ours.name!r} has {name} {', not '.join(texts)}")


def _compare_edges(other: OpGraph, graph: OpGraph, rows: Indices, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse an edge that is missing, added, or carries something else; their order is none of the schedule's."""
    place = np.empty(len(rows), np.int64)
    place[rows] = np.arange(len(rows))
    theirs = _sorted_edges(other, place[other.src], place[other.dst])
    ours = _sorted_edges(graph, graph.src, graph.dst)
    if theirs.shape == ours.shape and (theirs == ours).all():
        return
    n = min(len(theirs), len(ours))
    differs = (theirs[:n] != ours[:n]).any(axis=1)
    if differs.any():
        e = int(np.argmax(differs))
    else:
        e = n
    there, expected_edge = (table[e].tolist() if e < len(table) else None for table in (theirs, ours))
    if there is None or (expected_edge is not None and expected_edge[:2] < there[:2]):
        refuse(f"edge {_ends(graph, expected_edge)} is missing")
    if expected_edge is None or there[:2] < expected_edge[:2]:
        refuse(f"edge {_ends(graph, there)} is none of {graph.name!r}")
    k = 2 if there[2] != expected_edge[2] else 3
    value, expected = (None if row[k] == _NO_TRANSFER else row[k] for row in (there, expected_edge))
    refuse(f"edge {_ends(graph, expected_edge)} has {('nbytes', 'transfer')[k - 2]} {value!r}, not {expected!r}")


def _sorted_edges(graph: OpGraph, src: Indices, dst: Indices) -> Floats:
    """Return consumer, producer, bytes and exact transfer time of each edge, sorted, shape (n_edges, 4)."""
    transfer = np.where(np.isnan(graph.edge_transfer), _NO_TRANSFER, graph.edge_transfer)
    columns = (dst, src, graph.edge_nbytes, transfer)
    return np.stack(columns, axis=1).astype(np.float64)[np.lexsort(columns[::-1])]


def _ends(graph: OpGraph, row: Any) -> str:
    """Return which operators an edge is between, in a row of `_sorted_edges`."""
    return f"{graph.names[int(row[1])]} -> {graph.names[int(row[0])]}"
