"""Plans that are broken on purpose: can they go wrong? The plan itself says so; the text of the wrapper is not read.

Only which buffer takes the memory of another is taken from the text, as Inductor decides it when it writes it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hwbackend.torch.inductor.plan import INPUT_STREAM
from validation.inductor.drawn import Drawn

Flags = npt.NDArray[np.bool_]

_reused: Final = re.compile(
    r"^\s*(\w+) = (\w+); del \2|^\s*(\w+) = reinterpret_tensor\((\w+), .*; del \4", re.MULTILINE
)


def is_broken(drawn: Drawn, broken: str) -> bool:
    """Return whether a broken variant of a plan lets kernels of two streams meet in memory that one of them writes."""
    if broken == "no waits":
        return _crosses(drawn)
    before = _before(drawn)
    storages = _storages(drawn)
    return any(_reuses_too_early(storages, before)) or any(_frees_too_early(drawn, storages, before))


def _crosses(drawn: Drawn) -> bool:
    """Return whether a kernel needs one of another stream: without waits nothing orders them."""
    stream = drawn.plan.stream
    source = _sources(drawn)
    return any(
        stream[j] != stream[i]
        for i, kernel in enumerate(drawn.kernels)
        if kernel.launches
        for j in set().union(*(source[j] for j in kernel.after))
    )


def _sources(drawn: Drawn) -> list[set[int]]:
    """Return of each kernel itself, or, where it launches nothing, the kernels that it stands for."""
    rows: list[set[int]] = []
    for i, kernel in enumerate(drawn.kernels):
        rows.append({i} if kernel.launches else set().union(*(rows[j] for j in kernel.after)))
    return rows


def _before(drawn: Drawn) -> Flags:
    """Return which kernel ends before which begins, by waits and streams, itself included; shape (n, n)."""
    plan = drawn.plan
    assert plan.schedule is not None
    number = {kernel.name: i for i, kernel in enumerate(drawn.kernels)}
    pairs = [(number[edge.src], number[edge.dst]) for edge in plan.schedule.graph.edges]
    last: dict[int, int] = {}
    for i in plan.order:
        lane = plan.stream[i]
        if lane >= 0:
            if lane in last:
                pairs.append((last[lane], i))
            last[lane] = i
    into: dict[int, list[int]] = {}
    for first, second in pairs:
        into.setdefault(second, []).append(first)
    before = np.eye(len(drawn.kernels), dtype=bool)
    for i in plan.order:
        for j in into.get(i, ()):
            before[:, i] |= before[:, j]
    return before


def _users(drawn: Drawn) -> list[list[int]]:
    """Return the kernels that touch each allocation, in the order in which they are issued."""
    users: list[list[int]] = [[] for _ in drawn.memory]
    for i in drawn.plan.order:
        if drawn.plan.stream[i] >= 0:
            for number in drawn.kernels[i].touches:
                users[number].append(i)
    return users


@dataclass(frozen=True)
class _Storage:
    """Memory that allocations have one after the other.

    Parameters
    ----------
    users
        Of each allocation, the kernels that touch it, in the order in which they are issued.
    owner
        The stream that it is allocated on; None where it comes from outside.
    freed
        Whether it is freed before the last kernel.
    """

    users: list[list[int]]
    owner: int | None
    freed: bool

    @property
    def rows(self) -> list[int]:
        """All kernels that touch it."""
        return [i for rows in self.users for i in rows]


def _storages(drawn: Drawn) -> list[_Storage]:
    plan, memory = drawn.plan, drawn.memory
    users = _users(drawn)
    number = {name: i for i, allocation in enumerate(memory) for name in allocation.names}
    chains = {i: [i] for i in range(len(memory))}  # by the allocation that has the memory last
    for match in _reused.finditer(drawn.text):
        new, old = (match.group(k) or match.group(k + 2) for k in (1, 2))
        if new in number and old in number and number[new] != number[old]:
            chains[number[new]] = [*chains.pop(number[old]), number[new]]
    storages = []
    for last, chain in chains.items():
        rows = users[chain[0]]
        if rows:
            kept = (memory[last].lasts and not memory[last].given) or not plan.kept.isdisjoint(memory[last].names)
            owner = None if memory[chain[0]].given else plan.stream[rows[0]]
            storages.append(_Storage([users[i] for i in chain], owner, not kept))
    return storages


def _reuses_too_early(storages: Sequence[_Storage], before: Flags) -> Iterator[bool]:
    """Yield of each reuse whether kernels of both allocations may run beside each other."""
    for storage in storages:
        for k, rows in enumerate(storage.users):
            for others in storage.users[:k]:
                yield any(not before[i, j] and not before[j, i] for i in others for j in rows)


def _frees_too_early(drawn: Drawn, storages: Sequence[_Storage], before: Flags) -> Iterator[bool]:
    """Yield of each pair whether the second may get memory of the first that another stream still uses."""
    place = {i: at for at, i in enumerate(drawn.plan.order)}
    for old in storages:
        if not old.freed:
            continue
        owner = INPUT_STREAM if old.owner is None else old.owner
        end = max(place[i] for i in old.rows)
        for new in storages:
            if new.owner == owner and place[new.rows[0]] > end:
                yield any(not before[i, j] for i in old.rows for j in new.rows)
