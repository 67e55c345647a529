"""Columns of a run for the collectives of a program: loads on the channels between their ranks."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError
from simsched.model import Cluster, Ints, Meeting, OpGraph
from simsched.model.exchange import Exchange, exchange, exchange_on
from simsched.simulator import state

_UNLINKED: Final = Exchange("none", latency=1.0, nbytes=0.0, rate=1.0, bandwidth=1.0, channels=())


class LinkLoad(NamedTuple):
    """Load of a collective on links.

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


def loads_on_links(graph: OpGraph, cluster: Cluster, home: Ints) -> list[LinkLoad]:
    """Return the load of each collective of a graph on the links of a cluster.

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
        except ClusterError:  # without a given time, `demand` raises the error
            found.append(LinkLoad(_UNLINKED, (), len(meeting.members)))
    return found


def _load_on_links(meeting: Meeting, cluster: Cluster, homes: Sequence[int]) -> LinkLoad:
    """Return the load on links of a collective whose ranks are on some devices."""
    if meeting.is_symmetric:
        return load_of_symmetric(cluster, homes[0], exchange_on(meeting.collective, cluster.devices[homes[0]]))
    needed = exchange(meeting.collective, cluster.topology, homes)
    return LinkLoad(needed, needed.channels, len(homes))


def load_of_symmetric(cluster: Cluster, d: int, needed: Exchange) -> LinkLoad:
    """Return the load on links of a symmetric collective on device `d`."""
    if cluster.devices[d].topology == cluster.topology:
        return LinkLoad(needed, needed.channels, 1)
    return LinkLoad(needed, ((len(cluster.channels) + d, 1.0 / needed.bandwidth),), 1)


def columns_of_collectives(found: Sequence[LinkLoad]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of `state.CollectiveTable` by the loads of collectives on links."""
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
        "rows": rows,
        "channels": np.array([channel for channel, _ in crossed], np.int32),
        "weights": np.array([weight for _, weight in crossed], np.float64),
    }
