"""Opara's launch order: memory- and compute-intensive operators in turn, of each the one that needs least."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from simsched.model.graph import OpGraph
from simsched.schedulers.listing import readers, sources

_FIRST = 2.0
"""The released search starts from this metric: an operator with as much or more is never found by it."""


class _Ready:
    """Operators of one class that are ready.

    Those the search finds are kept by what they need, and by their turn; the others wait in turn until none of
    those is left.
    """

    def __init__(self, need: Sequence[float | None]) -> None:
        self._need = need
        self._found: list[tuple[float, int, int]] = []
        self._others: deque[int] = deque()

    def __bool__(self) -> bool:
        return bool(self._found or self._others)

    def put(self, v: int, turn: int) -> None:
        need = self._need[v]
        if need is None:
            self._others.append(v)
        else:
            heappush(self._found, (need, turn, v))

    def take(self) -> int:
        return heappop(self._found)[2] if self._found else self._others.popleft()


def launch_order(
    graph: OpGraph, memory: Sequence[bool], need: Sequence[float | None], *, by_parity: bool = False
) -> list[int]:
    """Return operators in launch order, a topological one.

    Parameters
    ----------
    memory
        Whether each operator is memory-intensive, in graph order; the others are compute-intensive.
    need
        What each needs of the GPU, the least first; of equal ones the one that was ready first. One with None comes
        after all ready ones of its class that have a need.
    by_parity
        Whose turn it is where both classes are ready: the other class than that of the last launch, or with
        `by_parity` compute at even and memory at odd places of the order, whatever was launched before.

    Notes
    -----
    Starts with compute. Ready together: in graph order. O(V log V + E log E).
    """
    consumers = readers(graph)
    missing = [len(row) for row in sources(graph)]
    queues = (_Ready(need), _Ready(need))  # compute, memory
    turn = 0
    for v in range(len(graph)):
        if missing[v] == 0:
            queues[memory[v]].put(v, turn)
            turn += 1
    order: list[int] = []
    wanted = 0
    while len(order) < len(graph):
        taken = wanted if queues[wanted] else 1 - wanted
        v = queues[taken].take()
        order.append(v)
        wanted = len(order) % 2 if by_parity else 1 - taken
        for w in consumers[v]:
            missing[w] -= 1
            if missing[w] == 0:
                queues[memory[w]].put(w, turn)
                turn += 1
    return order


def searched(need: Sequence[float], has_kernels: Sequence[bool]) -> list[float | None]:
    """Return needs as the released search finds them: none of operators without kernels, nor of 2 and more."""
    return [share if has and share < _FIRST else None for share, has in zip(need, has_kernels, strict=True)]
