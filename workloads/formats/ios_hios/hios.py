"""Schedules of HIOS, the hierarchical inter-operator scheduler for several GPUs.

The form is that of the Python code of [1]_ (commit 1e774de, `utils/ir.py` and `utils/crpath.py`; it has no
licence, and nothing is copied from it), which writes JSON for its C++ executor. The only such file released is
`graph_json`, with which it times a transfer; schedules were not to be had, so this follows the code alone.

It is the file of IOS (see `workloads.formats.ios_hios.ios`) with these differences:

Ranks
    Operators have a `rank`, the device they run on, and `outputs`, a [rank, tag] for each message that
    they send; a value is [name, begin, end, height, width, rank, tag]. Tags are not checked.
Stages
    The stages of a block are a list with an entry {"rank", "stages"} for each device; the devices run theirs at
    the same time. Names may be numbers.
Exits
    The last operator of a block that uses several devices has rank -1, -2 or -3: its output is broadcast,
    gathered by all, or gathered by the first. It occurs in the stages of every device. Here it is one operator,
    on the first device that lists it.
Messages
    An operator of type "mpi_sr" passes a tensor on; here it is a copy of kind "mpi_sr".

There are no times in it: edges carry bytes. Graphs with times are text, see `workloads.formats.ios_hios.hios_graph`.

References
----------
.. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
   Learning Models on Multiple GPUs", IEEE CLUSTER 2023; code at https://github.com/SHUs-Lab/HIOS.
"""

import os
from collections.abc import Mapping, Sequence, Set
from typing import Final

import numpy as np

from simsched.base.codec import Record
from simsched.base.errors import FormatError, ScheduleError, brief_text
from simsched.base.io import read_json
from simsched.base.numeric import twice
from simsched.model import OpGraph, Placement, Schedule
from workloads.formats.ios_hios.graph_reader import LARGEST, Block, GraphReader, Stages, stage_lists
from workloads.retired import refusing_retired

_LOWEST_RANK: Final = -3


@refusing_retired
def read_hios(
    path: str | os.PathLike[str],
    *,
    batch: int = 1,
    dtype: str = "fp32",
    on: Sequence[str] | None = None,
) -> Schedule:
    """Read a schedule of HIOS with its graph.

    Parameters
    ----------
    path
        The file, JSON.
    batch, dtype
        Batch size and number format, which the file lacks; see `workloads.formats.ios_hios.ios.read_ios`.
    on
        Names of the devices, by rank, no two the same; by default "gpu0", "gpu1", ...

    Returns
    -------
    Schedule
        Of `execution` "stages". Each device numbers its own stages, through all blocks; group j of a
        stage is on stream j. Launches keep the order of the file on each device; between devices,
        producers come first where that is possible.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not such a file; the message names the operator or the block, and the field.
    GraphError
        If an operator cannot be, such as a window that is larger than the image.
    ScheduleError
        If `on` names a device twice.

    Notes
    -----
    The stages are given as they are, as `read_ios` does: `Schedule.check` says whether they can run. The
    barrier between blocks that broadcasting an exit amounts to is not part of the schedule: devices
    wait for their inputs. O(size of the file).
    """
    doubled = twice(on or ())
    if doubled is not None:
        raise ScheduleError(f"device {doubled!r} has two ranks; name each device once in `on`")
    reader = GraphReader(read_json(path), str(path), batch, dtype, ranked=True)
    queues: dict[int, list[Placement]] = {}
    for block in reader.blocks:
        ran: list[str] = []
        for rank, stages in _by_rank(block):
            queue = queues.setdefault(rank, [])
            name = _device(block, rank, on)
            elsewhere = set(ran)
            stage = queue[-1].stage + 1 if queue else 0
            for groups in stages:
                rows = [
                    Placement(op, name, j, stage, j)
                    for j, group in enumerate(groups)
                    for op in group
                    if _runs_here(op, rank, elsewhere, block, reader.ranks)
                ]
                queue += rows
                ran += [row.op for row in rows]
                stage += bool(rows)
        block.require_once(ran)
    return Schedule(
        reader.graph, _launches(reader.graph, [queues[rank] for rank in sorted(queues)]), "stages", scheduler="hios"
    )


def _by_rank(block: Block) -> list[tuple[int, Stages]]:
    """Return the stages of each device in a block, by rank."""
    if block.stages is None:
        raise FormatError(f"{block.where}: field 'stages' is missing")
    stages_of: dict[int, Stages] = {}
    for i, data in enumerate(block.stages):
        row = Record(data, f"{block.where}.stages[{i}]")
        rank = row.take("rank", int)
        if not 0 <= rank <= LARGEST or rank in stages_of:
            raise FormatError(
                f"{row.where}: field 'rank' is {brief_text(rank)}; it must be that of a device, each once"
            )
        stages_of[rank] = stage_lists(row.take("stages", list), row.where)
    return sorted(stages_of.items())


def _device(block: Block, rank: int, on: Sequence[str] | None) -> str:
    if on is None:
        return f"gpu{rank}"
    if rank >= len(on):
        raise FormatError(f"{block.where}: field 'stages' has rank {rank}; there are names for {len(on)} devices only")
    return on[rank]


def _runs_here(op: str, rank: int, elsewhere: Set[str], block: Block, ranks: Mapping[str, int]) -> bool:
    """Return whether an operator runs where it is listed: an exit of several devices does so on the first of them."""
    own = ranks.get(op, rank)
    if own < 0 and op == block.names[-1]:
        if own < _LOWEST_RANK:
            raise FormatError(f"{block.where}: operator {op!r}: field 'rank' is {own}; below 0 are -1, -2 and -3")
        return op not in elsewhere
    if own != rank and op in block.names:
        raise FormatError(f"{block.where}: field 'stages' has operator {op!r} on rank {rank}; its own is {own}")
    return True


def _launches(graph: OpGraph, queues: Sequence[Sequence[Placement]]) -> list[Placement]:
    """Return the launches of all devices as one order, producers first where the devices' orders allow it."""
    ptr, edges = graph.outgoing
    waiting = np.bincount(graph.dst, minlength=len(graph)).tolist()
    at = [0] * len(queues)
    placements: list[Placement] = []
    moved = True
    while moved:
        moved = False
        for k, queue in enumerate(queues):
            while at[k] < len(queue) and not waiting[graph.index[queue[at[k]].op]]:
                i = graph.index[queue[at[k]].op]
                for e in edges[ptr[i] : ptr[i + 1]]:
                    waiting[graph.dst[e]] -= 1
                placements.append(queue[at[k]])
                at[k] += 1
                moved = True
    return placements + [row for k, queue in enumerate(queues) for row in queue[at[k] :]]
