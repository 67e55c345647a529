"""Branches of a graph that are independent of some operator, alike ones taken together."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from simsched.base.errors import WhatIfError
from simsched.model import OpGraph

MOST_OPERATORS: Final = 20_000
"""Operators of a graph of which branches are looked for: who follows whom takes a bit for each pair."""
_DIGITS: Final = re.compile(r"\d+")
_MOST_NAMED: Final = 4
_WIDEST: Final = 24


@dataclass(frozen=True, slots=True)
class Branch:
    """Operators that may run beside others, in every place of the graph where the same ones may.

    Parameters
    ----------
    name
        In words: of one operator its role, of several that begin alike the beginning, else the first and the last.
    beside
        Roles of the operators that run beside it, the longest list first.
    places
        Operators of each place by index, in topological order.
    rivals
        Operators that run beside any place, by index, rising.
    """

    name: str
    beside: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    rivals: tuple[int, ...]

    @property
    def operators(self) -> tuple[int, ...]:
        """All its operators."""
        return tuple(op for place in self.places for op in place)


class _Reach:
    """Who follows whom, as bits of one whole number for each operator.

    Parameters
    ----------
    graph
        Of up to `MOST_OPERATORS` operators.
    """

    def __init__(self, graph: OpGraph) -> None:
        n = len(graph)
        self.order = [int(i) for i in graph.order_index]
        self.before: list[list[int]] = [[] for _ in range(n)]
        self.after: list[list[int]] = [[] for _ in range(n)]
        for src, dst in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
            if src not in self.before[dst]:
                self.before[dst].append(src)
                self.after[src].append(dst)
        self.ancestors = [0] * n
        for i in self.order:
            for src in self.before[i]:
                self.ancestors[i] |= self.ancestors[src] | 1 << src
        self.descendants = [0] * n
        for i in reversed(self.order):
            for dst in self.after[i]:
                self.descendants[i] |= self.descendants[dst] | 1 << dst
        self.place = {op: k for k, op in enumerate(self.order)}
        self.all = (1 << n) - 1

    def unrelated_operators(self, op: int) -> int:
        """Return the operators that neither lead to an operator nor follow it."""
        return self.all & ~(self.ancestors[op] | self.descendants[op] | 1 << op)

    def rivals(self, places: Iterable[Sequence[int]]) -> frozenset[int]:
        """Return the operators that are unrelated to the first one of a place, and no part of it."""
        result: set[int] = set()
        for place in places:
            bits = self.unrelated_operators(place[0])
            for op in place:
                bits &= ~(1 << op)
            while bits:
                low = bits & -bits
                result.add(low.bit_length() - 1)
                bits ^= low
        return frozenset(result)

    def branch(self, first: int) -> list[int]:
        """Return an operator and all after it that need nothing but it, its ancestors, and each other."""
        members = {first}
        ready = self.ancestors[first] | 1 << first
        waiting = [(self.place[dst], dst) for dst in self.after[first]]
        heapify(waiting)
        while waiting:
            _, op = heappop(waiting)
            if op in members or any(not ready >> src & 1 for src in self.before[op]):
                continue
            members.add(op)
            ready |= 1 << op
            for dst in self.after[op]:
                heappush(waiting, (self.place[dst], dst))
        return sorted(members, key=self.place.__getitem__)


def branches(graph: OpGraph) -> list[Branch]:
    """Return the branches of a graph in the order in which they begin.

    Raises
    ------
    WhatIfError
        If the graph has more than `MOST_OPERATORS` operators.

    Notes
    -----
    A branch begins at each operator that follows a fork or nothing, and has all that needs nothing besides. It counts
    if there is an operator that neither leads to its first one nor follows it. Alike are branches whose operators have
    the same names but for the numbers in the label of their block; of two that could run beside each other the second
    is a branch of its own. O(V (V / 64 + E)) with V^2 / 4 bits.

    >>> from simsched.model import Edge, Operator
    >>> ops = [Operator(name) for name in ("norm", "shared", "routed", "sum")]
    >>> edges = [Edge("norm", "shared"), Edge("norm", "routed"), Edge("shared", "sum"), Edge("routed", "sum")]
    >>> [(branch.name, branch.beside) for branch in branches(OpGraph(ops, edges))]
    [('routed', ('shared',))]
    """
    if len(graph) > MOST_OPERATORS:
        raise WhatIfError(
            f"graph {graph.name!r} has {len(graph):,} operators, and overlaps are looked for among up to "
            f"{MOST_OPERATORS:,}: give a part of it, such as layers=4"
        )
    reach = _Reach(graph)
    roles = _roles(graph)
    groups: dict[tuple[tuple[str, ...], int], list[list[int]]] = {}
    for first in reach.order:
        begins = not reach.before[first] or any(len(reach.after[src]) > 1 for src in reach.before[first])
        if not begins or not reach.unrelated_operators(first):
            continue
        place = reach.branch(first)
        key = tuple(roles[op] for op in place)
        number = 0
        while (key, number) in groups and not reach.ancestors[first] >> groups[key, number][-1][0] & 1:
            number += 1
        groups.setdefault((key, number), []).append(place)
    result = []
    named: Counter[str] = Counter()
    for (key, _), places in groups.items():
        rivals = reach.rivals(places)
        if rivals:
            name = _name_of(key, roles)
            named[name] += 1
            if named[name] != 1:
                name = f"{name} ({named[name]})"
            beside = tuple(dict.fromkeys(roles[op] for op in sorted(rivals, key=reach.place.__getitem__)))
            result.append(Branch(name, beside, tuple(map(tuple, places)), tuple(sorted(rivals))))
    return _distinct(result)


def _distinct(candidates: Sequence[Branch]) -> list[Branch]:
    """Leave out the end of a branch that has the same rivals, and of two that are rivals of each other the longer one.

    Of two that are equally long the one that begins first is left out.
    """
    by_rivals: dict[tuple[int, ...], list[frozenset[int]]] = {}
    pairs: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    kept: list[Branch] = []
    for branch in sorted(candidates, key=lambda one: -len(one.places[0])):
        members = frozenset(branch.operators)
        longer = by_rivals.setdefault(branch.rivals, [])
        if not any(members < others for others in longer):
            longer.append(members)
            kept.append(branch)
    listed: set[str] = set()
    for branch in reversed(kept):
        own = tuple(sorted(branch.operators))
        if (branch.rivals, own) not in pairs:
            pairs.add((own, branch.rivals))
            listed.add(branch.name)
    return [branch for branch in candidates if branch.name in listed]


def _roles(graph: OpGraph) -> list[str]:
    """Return the name of each operator without the label of its block, which has its numbers."""
    codes, labels = graph.labels("block")
    roles = []
    for name, code in zip(graph.names, codes.tolist(), strict=True):
        block = labels[code] or ""
        if block:
            inside = name.removeprefix(f"{block}.")
        else:
            inside = name
        pattern = _DIGITS.sub("#", block)
        roles.append(inside if pattern in ("", "layer#") else f"{pattern}.{inside}")
    return roles


def _name_of(roles: Sequence[str], every: Sequence[str]) -> str:
    """Return a name of some of all roles."""
    if len(roles) == 1:
        return roles[0]
    start = f"{roles[0].rpartition('.')[0]}."
    if start != "." and {role for role in every if role.startswith(start)} == {*roles}:
        return start[:-1]
    return f"{roles[0]} .. {roles[-1]}"


def shorten_name(roles: Sequence[str], most: int = _WIDEST) -> str:
    """Return roles as a table shows them: a few of them, each cut where it is long.

    >>> shorten_name(["a", "b"]), shorten_name(["a", "b", "c", "d", "e"]), shorten_name(["x" * 50], 20)
    ('a, b', 'a, b, c, .. e', 'xxxxxxxxxxxxxxxxxx..')
    """
    cut = [role if len(role) <= most else f"{role[: most - 2]}.." for role in roles]
    if len(cut) <= _MOST_NAMED:
        return ", ".join(cut)
    return f"{', '.join(cut[: _MOST_NAMED - 1])}, .. {cut[-1]}"
