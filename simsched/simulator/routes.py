"""The ways of the copies of a program."""

from typing import NamedTuple

import numpy as np

from simsched.model import COPY, Cluster, Ints, Program
from simsched.model.cluster.routing import Routes
from simsched.model.program import Small


class CopyRoutes(NamedTuple):
    """The routes of those copies whose times are not given.

    Parameters
    ----------
    of
        The row of each copy.
    source, target
        Where each row begins and ends, as positions in the cluster.
    routes
        By rows.
    """

    of: Small
    source: Ints
    target: Ints
    routes: Routes


def copy_routes(program: Program, cluster: Cluster) -> CopyRoutes | None:
    """Return the routes of copies, None if it needs none.

    Raises
    ------
    ClusterError
        If a copy has no way to its destination; of several the first in the program is named.
    """
    copies, n = program.copies, len(cluster.devices)
    moved = np.flatnonzero(np.isnan(copies.transfer))
    if not len(moved):
        return None
    rows = np.flatnonzero(program.action == COPY)
    source, of = np.zeros(len(copies.op), np.int64), np.zeros(len(copies.op), np.int32)
    source[program.argument[rows]] = program.device[rows]
    pairs, of[moved] = np.unique(source[moved] * n + copies.device[moved], return_inverse=True)
    routes = cluster.routes(pairs // n, pairs % n)
    if not routes.known.all():
        copy = program.argument[rows]
        first = copy[np.isnan(copies.transfer[copy]) & ~routes.known[of[copy]]][0]
        cluster.route(program.devices[source[first]], program.devices[copies.device[first]])
    return CopyRoutes(of, pairs // n, pairs % n, routes)
