"""The collectives of a program laid out for a run: what each takes of the channels between its ranks."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError
from simsched.model import Cluster, Ints, Meeting, OpGraph
from simsched.model.exchange import Exchange, exchange, exchange_on
from simsched.simulator import state

_UNLINKED: Final = Exchange("none", latency=1.0, nbytes=0.0, rate=1.0, bandwidth=1.0, channels=())


class Taken(NamedTuple):
    """What a collective of a run takes.

    Parameters
    ----------
    exchange
        Times and bytes.
    channels
        Channels of the run, links first, then ports: with the bytes that each carries for a byte of a rank.
    ranks
        How many operators it has.
    """

    exchange: Exchange
    channels: tuple[tuple[int, float], ...]
    ranks: int


def loads_on_links(graph: OpGraph, cluster: Cluster, home: Ints) -> list[Taken]:
    """Return what each collective of a graph takes on a cluster.

    Parameters
    ----------
    home
        Position of the device of each operator, shape (n_ops,).

    Notes
    -----
    The links of a device by itself are not among those of its cluster: it has a port as wide as they are. A collective
    between devices that no links join loads none.
    """
    found = []
    for meeting in graph.meetings:
        try:
            found.append(_load_on_links(meeting, cluster, home[list(meeting.members)].tolist()))
        except ClusterError:  # its time must be known, else whoever asks for it is told
            found.append(Taken(_UNLINKED, (), len(meeting.members)))
    return found


def _load_on_links(meeting: Meeting, cluster: Cluster, homes: Sequence[int]) -> Taken:
    """Return what a collective takes whose ranks are on some devices."""
    if meeting.is_symmetric:
        return taken_on(cluster, homes[0], exchange_on(meeting.collective, cluster.devices[homes[0]]))
    needed = exchange(meeting.collective, cluster.topology, homes)
    return Taken(needed, needed.channels, len(homes))


def taken_on(cluster: Cluster, d: int, needed: Exchange) -> Taken:
    """Return what a symmetric collective takes on device `d`."""
    if cluster.devices[d].topology == cluster.topology:
        return Taken(needed, needed.channels, 1)
    return Taken(needed, ((len(cluster.channels) + d, 1.0 / needed.bandwidth),), 1)


def rows_of(found: Sequence[Taken]) -> dict[str, npt.NDArray[Any]]:
    """Return columns of a `State` that are about collectives."""
    rows = np.zeros(len(found), state.ExchangeState.dtype)
    for name in ("latency", "nbytes", "rate"):
        rows[name] = [getattr(each.exchange, name) for each in found]
    rows["solo"] = [each.exchange.time for each in found]
    for name, sizes in (("", [len(each.channels) for each in found]), ("_member", [each.ranks for each in found])):
        ends = np.cumsum(sizes, dtype=np.int64)
        rows[f"first{name}"] = ends - sizes
        rows[f"end{name}"] = ends
    crossed = [pair for each in found for pair in each.channels]
    return {
        "exchanges": rows,
        "exchange_channels": np.array([channel for channel, _ in crossed], np.int32),
        "exchange_weights": np.array([weight for _, weight in crossed], np.float64),
    }
