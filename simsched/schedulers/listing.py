"""What schedulers share: adjacency as plain lists, and the refusal of options that cannot be."""

from itertools import pairwise

import numpy as np

from simsched.errors import SchedulerError
from simsched.graph import OpGraph
from simsched.numeric import is_count, is_number


def require_streams(scheduler: str, streams: int) -> None:
    """Refuse a number of streams that is none, or less than 1."""
    if is_number(streams) and streams < 1:
        raise SchedulerError(f"{scheduler}: streams must be at least 1, not {streams!r}")
    if not is_count(streams, 1):
        raise SchedulerError(f"{scheduler}: streams must be a whole number, not {streams!r}")


def require_flag(scheduler: str, option: str, value: bool) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise SchedulerError(f"{scheduler}: {option} must be True or False, not {value!r}")


def readers(graph: OpGraph) -> list[list[int]]:
    """Return the consumers of each operator in graph order, each once."""
    ptr, edges = graph.outgoing
    targets, bounds = graph.dst[edges].tolist(), ptr.tolist()
    return [sorted(set(targets[a:b])) for a, b in pairwise(bounds)]


def sources(graph: OpGraph) -> list[list[int]]:
    """Return the producers that each operator reads from, in graph order, each once."""
    ptr, edges = graph.incoming
    origins, bounds = graph.src[edges].tolist(), ptr.tolist()
    return [sorted(set(origins[a:b])) for a, b in pairwise(bounds)]
