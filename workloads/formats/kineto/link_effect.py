"""Collectives of a trace after changes of links, devices and ranks: measured times in proportion to the model's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from simsched.base.errors import ClusterError, WhatIfError
from simsched.experiments.whatif.changes import Change
from simsched.model import Device, Floats
from workloads.formats.kineto.collectives import RankCollective
from workloads.formats.kineto.links import Links, is_of_links
from workloads.formats.kineto.rates import count_of, counts_of

_MOST_RANKS: Final = 1024
"""Most ranks of a change: the model looks at all pairs of them."""
_RANKS: Final = "ranks"


@dataclass(frozen=True)
class LinkEffect:
    """Times of the collectives of a trace after changes.

    Parameters
    ----------
    ratios
        New time of each operator as a multiple of its time before, shape (n_ops,).
    collectives
        Number of collectives.
    measured_us, simulated_us
        Time of those that follow, as measured and after the changes.
    unchanged
        How many of them keep their times, by the reason.
    """

    ratios: Floats
    collectives: int
    measured_us: float
    simulated_us: float
    unchanged: Counter[str]

    @property
    def line(self) -> str:
        """How the times change, how many collectives keep theirs, and why."""
        n_unchanged = self.unchanged.total()
        parts = []
        if n_unchanged < self.collectives:
            others = count_of(self.collectives - n_unchanged, "collective")
            parts.append(
                f"{self.measured_us:.1f} us of {others} become {self.simulated_us:.1f} us, in proportion to the model"
            )
        if n_unchanged:
            whole = count_of(self.collectives, "collective")
            parts.append(f"{n_unchanged} of {whole} keep their times: {counts_of(self.unchanged)}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {
            "collectives": self.collectives,
            "measured_us": self.measured_us,
            "simulated_us": self.simulated_us,
            "unchanged": dict(self.unchanged),
        }


def concerns(change: Change) -> bool:
    """Return whether collectives follow a change by the model."""
    return change.parameter == "device" or must_concern(change)


def must_concern(change: Change) -> bool:
    """Return whether nothing but collectives follows a change."""
    return change.parameter == _RANKS or is_of_links(change)


def effect_of(
    collectives: Sequence[RankCollective], times: Floats, device: Device, changes: Sequence[Change]
) -> LinkEffect:
    """Return the times of collectives after changes that concern them.

    Parameters
    ----------
    collectives
        Collectives of the trace.
    times
        Time of each operator in us.
    device
        The GPU that ran them.
    changes
        Differences; the device, links and the number of ranks count.

    Raises
    ------
    WhatIfError
        If a change of links or ranks concerns no collective, or ranks are too many.
    ClusterError
        If a value is out of its range.

    Notes
    -----
    The measured time of a collective changes in proportion to the model's time: at first on the usual links of the
    traced GPU, then on the usual links of the new one, with the changes of links. More ranks than a node has lie on
    several nodes, which the preset network joins. Bytes stay, and a send or receive has two ranks in any case.
    """
    changes = [change for change in changes if concerns(change)]
    ops: list[int] = []
    ratios = np.ones(len(times))
    unchanged: Counter[str] = Counter()
    before = Links.of_traced(device)
    after = before.with_changes(changes)
    ranks = next((change.value for change in reversed(changes) if change.parameter == _RANKS), None)
    if ranks is not None and ranks > _MOST_RANKS:
        raise WhatIfError(f"{_RANKS}={ranks}: give at most {_MOST_RANKS} ranks")
    only_ranks = all(change.parameter == _RANKS for change in changes)
    for one in collectives:
        try:
            modelled = before.measured_time(one)
            collective = one.exchange
            assert collective is not None
            if ranks is not None and collective.operation != "send_recv":
                collective = replace(collective, ranks=ranks)
            elif only_ranks:
                raise ClusterError("send_recv has two ranks")
            ratios[one.op] = after.time(collective, of_nccl=one.is_of_nccl) / modelled
            ops.append(one.op)
        except ClusterError as error:
            unchanged[str(error)] += 1
    pointless = next((change for change in changes if must_concern(change)), None)
    if pointless is not None and not ops:
        if collectives:
            why = f"none of {count_of(len(collectives), 'collective')} can follow: {counts_of(unchanged)}"
        else:
            why = "it has no collective"
        raise WhatIfError(f"{pointless}: a replayed trace has no {pointless.parameter!r} that could be changed: {why}")
    before_us = float(times[ops].sum())
    return LinkEffect(ratios, len(collectives), before_us, float((times * ratios)[ops].sum()), unchanged)
