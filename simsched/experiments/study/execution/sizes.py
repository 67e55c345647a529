"""How many items make a batch: as many as take a fixed time, as far as that can be foretold."""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

AIM: Final = 0.25
"""Seconds that a batch takes: long beside what sending it costs, short beside what a kill may lose."""
_FIRST: Final = 0.1  # s; of batches about which nothing is known
_LEAST: Final = 0.02  # s; of the last ones
_GUESS: Final = 0.05  # s that an item takes of whose group nothing is known
_SHORTEST: Final = 2e-5  # s; no item counts as less, so that batches stay finite
_MEMORY: Final = 8  # batches after which older ones are forgotten


class Sizes:
    """What the items of each group take, learned from batches that are done.

    Parameters
    ----------
    groups
        Of each item.
    """

    def __init__(self, groups: Iterable[Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        self._groups = [numbers.setdefault(group, len(numbers)) for group in groups]  # of a million, a name is long
        self._mean: dict[int, float] = {}
        self._seen: Counter[int] = Counter()  # batches of that group
        self._sure: dict[int, None] = {}  # groups of which a batch had no others
        self._waiting = Counter(self._groups)
        self._left = _GUESS * len(self._groups)

    def seconds(self, position: int) -> float:
        """Return what an item is expected to take."""
        return self._mean.get(self._groups[position], _GUESS)

    def known(self, position: int) -> bool:
        """Return whether an item of its group has been done."""
        return self._groups[position] in self._mean

    def take(self, waiting: deque[int], workers: int) -> list[int]:
        """Take from the front of what is waiting as much as makes a batch, one item at least."""
        most = min(AIM, max(_LEAST, self._left / (2 * workers)))  # less and less, so that all end together
        taken: list[int] = []
        total = 0.0
        while waiting:
            position = waiting[0]
            if not self.known(position):
                most = min(most, _FIRST)
            total += self.seconds(position)
            if taken and total > most:
                break
            taken.append(waiting.popleft())
            self._waiting[self._groups[position]] -= 1
            self._left -= self.seconds(position)
        return taken

    def learn(self, positions: Sequence[int], seconds: float) -> None:
        """Take note of the wall time of a batch; where it had several groups, it is shared out as expected."""
        counts = Counter(self._groups[position] for position in positions)
        open_to = [group for group in counts if group not in self._sure] or list(counts)
        expected = {group: counts[group] * self._mean.get(group, _GUESS) for group in counts}
        rest = max(seconds - sum(expected[group] for group in counts if group not in open_to), 0.0)
        ratio = rest / sum(expected[group] for group in open_to)
        for group in open_to:
            if len(counts) == 1 and group not in self._sure:
                self._sure[group] = None
                self._seen[group] = 0  # what was shared out before is not worth as much
            self._seen[group] = min(self._seen[group] + 1, _MEMORY)
            before = self._mean.get(group, _GUESS)
            after = before + (before * ratio - before) / self._seen[group]
            self._mean[group] = max(after, _SHORTEST)
            self._left += self._waiting[group] * (self._mean[group] - before)
