"""Schedules of HIOS, the hierarchical inter-operator scheduler for several GPUs.

The form is that of the Python code of [1]_ (commit 1e774de, `utils/ir.py` and `utils/crpath.py`; it has no
licence, and nothing of it is copied), which writes JSON for its C++ executor. The only such file released is
`graph_json`, with which it times a transfer; schedules were not to be had, so this follows the code alone.
What the executor makes of a file written here was not tried.

It is the file of IOS (see `workloads.formats.ios`) with these differences:

Ranks
    Operators have a `rank`, the device they run on, and `outputs`, a [rank, tag] for each message that
    they send; a value is [name, begin, end, height, width, rank, tag]. Tags are not checked.
Stages
    Those of a block are a list with an entry {"rank", "stages"} for each device; the devices run theirs at
    the same time. Names may be numbers.
Exits
    The last operator of a block that uses several devices has rank -1, -2 or -3: its output is broadcast,
    gathered by all, or gathered by the first. It stands in the stages of every device. Here it is one operator,
    on the first device that lists it.
Messages
    An operator of type "mpi_sr" passes a tensor on; here it is a copy of kind "mpi_sr".

There are no times in it: edges carry bytes. Graphs with times are text, see `workloads.formats.hios_graph`.

References
----------
.. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
   Learning Models on Multiple GPUs", IEEE CLUSTER 2023; code at https://github.com/SHUs-Lab/HIOS.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simsched.base.errors import FormatError, ScheduleError
from simsched.base.io import Record, dump_json, read_json, write_file
from simsched.model.cluster import Device
from simsched.model.graph import OpGraph
from simsched.model.plan import Placement
from simsched.model.schedule import Schedule
from workloads.checks import shown
from workloads.formats.ios_read import LARGEST, Block, GraphReader, Stages, stage_lists
from workloads.formats.ios_write import document, staged

_LOWEST_RANK: Final = -3
_BROADCAST: Final = -1
_GATHER: Final = -3


def read_hios(
    path: str | os.PathLike[str],
    *,
    batch: int = 1,
    dtype: str = "fp32",
    device: str | Device | None = None,
    on: Sequence[str] | None = None,
) -> Schedule:
    """Read a schedule of HIOS with its graph.

    Parameters
    ----------
    path
        The file, JSON.
    batch, dtype, device
        What the file does not record; see `workloads.formats.ios.read_ios`.
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
    wait for what they read. O(size of the file).
    """
    _check_names(on)
    reader = GraphReader(read_json(path), str(path), batch, dtype, device, ranked=True)
    queues: dict[int, list[Placement]] = {}
    for block in reader.blocks:
        placed: dict[str, int | None] = dict.fromkeys(block.names)
        for rank, stages in _by_rank(block):
            queue = queues.setdefault(rank, [])
            name = _device(block, rank, on)
            stage = queue[-1].stage + 1 if queue else 0
            for groups in stages:
                rows = [
                    Placement(op, name, j, stage, j)
                    for j, group in enumerate(groups)
                    for op in group
                    if _is_here(op, rank, placed, block, reader.ranks)
                ]
                queue += rows
                stage += bool(rows)
        missing = next((op for op, rank in placed.items() if rank is None), None)
        if missing is not None:
            raise FormatError(f"{block.where}: field 'stages' leaves out operator {missing!r}")
    return Schedule(reader.graph, _launches(reader.graph, [queues[rank] for rank in sorted(queues)]), "stages",
                    scheduler="hios")  # fmt: skip


def _check_names(on: Sequence[str] | None) -> None:
    twice = next((name for i, name in enumerate(on or ()) if name in (on or ())[:i]), None)
    if twice is not None:
        raise ScheduleError(f"device {twice!r} has two ranks; name each device once in `on`")


def _by_rank(block: Block) -> list[tuple[int, Stages]]:
    """Return the stages of each device in a block, by rank."""
    if block.stages is None:
        raise FormatError(f"{block.where}: field 'stages' is missing")
    found: dict[int, Stages] = {}
    for i, data in enumerate(block.stages):
        row = Record(data, f"{block.where}.stages[{i}]")
        rank = row.take("rank", int)
        if not 0 <= rank <= LARGEST or rank in found:
            raise FormatError(f"{row.where}: field 'rank' is {shown(rank)}; it must be that of a device, each once")
        found[rank] = stage_lists(row.take("stages", list), row.where)
    return sorted(found.items())


def _device(block: Block, rank: int, on: Sequence[str] | None) -> str:
    if on is None:
        return f"gpu{rank}"
    if rank >= len(on):
        raise FormatError(f"{block.where}: field 'stages' has rank {rank}; there are names for {len(on)} devices only")
    return on[rank]


def _is_here(op: str, rank: int, placed: dict[str, int | None], block: Block, ranks: Mapping[str, int]) -> bool:
    """Note where an operator is listed; return whether this is the first place, which is where it runs."""
    if op not in placed:
        raise FormatError(f"{block.where}: field 'stages' names {op!r}, which is no operator of the block")
    shared = ranks[op] < 0 and op == block.names[-1]
    if not shared and ranks[op] != rank:
        raise FormatError(f"{block.where}: field 'stages' has operator {op!r} on rank {rank}; its own is {ranks[op]}")
    if ranks[op] < _LOWEST_RANK:
        raise FormatError(f"{block.where}: operator {op!r}: field 'rank' is {ranks[op]}; below 0 are -1, -2 and -3")
    if placed[op] is not None:
        if shared and placed[op] != rank:
            return False
        raise FormatError(f"{block.where}: field 'stages' names {op!r} twice")
    placed[op] = rank
    return True


def _launches(graph: OpGraph, queues: Sequence[Sequence[Placement]]) -> list[Placement]:
    """Return the launches of all devices as one order, producers first where the devices' orders allow it."""
    ptr, edges = graph.outgoing
    waiting = np.bincount(graph.dst, minlength=len(graph)).tolist()
    at = [0] * len(queues)
    found: list[Placement] = []
    moved = True
    while moved:
        moved = False
        for k, queue in enumerate(queues):
            while at[k] < len(queue) and not waiting[graph.index[queue[at[k]].op]]:
                i = graph.index[queue[at[k]].op]
                for e in edges[ptr[i] : ptr[i + 1]]:
                    waiting[graph.dst[e]] -= 1
                found.append(queue[at[k]])
                at[k] += 1
                moved = True
    return found + [row for k, queue in enumerate(queues) for row in queue[at[k] :]]


def write_hios(schedule: Schedule, path: str | os.PathLike[str], *, on: Sequence[str] | None = None) -> None:
    """Write a schedule with its graph as a file of HIOS.

    Parameters
    ----------
    schedule
        What to write; it must run in stages.
    path
        The file to write, whole or not at all.
    on
        Devices by rank. By default those that run something, ordered by the number in their names.

    Raises
    ------
    GraphError
        Naming the first operator that the format cannot express; see `workloads.formats.ios.write_ios`.
    ScheduleError
        If it is no schedule, not of `execution` "stages", cannot run, or uses a device that `on`
        lacks or names twice.
    FileError
        If the file cannot be written.

    Notes
    -----
    Read back, the file gives the same operators and edges and the same stages on each device, as
    with `write_ios`, which says what is lost and how blocks are cut. Where several devices are used,
    the exit of a block gets rank -1, that of the last block -3, and stands in the last stage of each
    device, if it is on the first device; elsewhere it keeps its rank. Tags are counted from 1.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from workloads.models.network import Network
    >>> net = Network("two")
    >>> first = net.conv("first", net.input(1, 3, 8, 8), 4, 1)
    >>> last = net.conv("last", first, 4, 1)
    >>> plan = Schedule(net.graph(), [Placement("first", "gpu1"), Placement("last", "gpu0")], "stages")
    >>> with TemporaryDirectory() as folder:
    ...     write_hios(plan, f"{folder}/plan.json")
    ...     read_hios(f"{folder}/plan.json").devices_used
    ('gpu1', 'gpu0')
    """
    write_file(path, dump_json(_document(schedule, str(path), on)))


def _document(schedule: Schedule, source: str, on: Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(schedule, Schedule):
        raise ScheduleError(
            f"{source}: a file of HIOS holds a schedule, which {type(schedule).__name__} is not; "
            "schedule the graph first"
        )
    _check_names(on)
    found = document(schedule.graph, schedule)
    names = sorted(schedule.devices_used, key=lambda name: (len(name), name)) if on is None else list(on)
    rank_of = {name: rank for rank, name in enumerate(names)}
    strange = next((name for name in schedule.devices_used if name not in rank_of), None)
    if strange is not None:
        raise ScheduleError(f"schedule of {schedule.graph.name!r}: device {strange!r} has no rank; name it in `on`")
    ranks = {row.op: rank_of[row.device] for row in schedule.placements}
    several = len(names) > 1
    for block, stages in zip(found["blocks"], staged(schedule, found), strict=True):
        leave = block["exit_node"]["name"]
        block["stages"] = [
            {"rank": rank, "stages": [groups for device, groups in stages if device == name]}
            for rank, name in enumerate(names)
        ]
        if several and ranks[leave] == 0:
            ranks[leave] = _GATHER if block is found["blocks"][-1] else _BROADCAST
            for entry in block["stages"][1:]:
                entry["stages"].append([[leave]])
    _Messages(found, ranks, several)
    GraphReader(found, source, 1, "fp32", None, ranked=True)  # what is written can be read
    return found


class _Messages:
    """Adds ranks, the sizes of values and the messages between operators to a document of IOS."""

    def __init__(self, written: dict[str, Any], ranks: Mapping[str, int], several: bool) -> None:
        self._ranks = {**ranks, written["input"]["name"]: 0}
        self._several = several
        self._shapes: dict[str, list[int]] = {}
        self._outputs: dict[str, list[list[int]]] = {}
        self._tag = 0
        enter = written["input"]
        enter["rank"] = _BROADCAST if several else 0
        self._shapes[enter["name"]] = enter["output_shape"]
        for block in written["blocks"]:
            for node in (*block["inner_nodes"], block["exit_node"]):
                self._add(node, node["name"])

    def _add(self, node: dict[str, Any], unit: str) -> None:
        name = node["name"]
        node["rank"] = self._ranks[name] = self._ranks[unit]
        node["outputs"] = []
        self._shapes[name] = node["output_shape"]
        for part in node.get("nodes", []):
            self._add(part, unit)
        for term in node.get("inputs", []):
            for value in term:
                self._tag += 1
                producer = value[0]
                value += [*self._shapes[producer][1:], self._ranks[producer], self._tag]
                if producer in self._outputs and self._several and min(self._ranks[unit], self._ranks[producer]) >= 0:
                    self._outputs[producer].append([self._ranks[unit], self._tag])
        if name == unit:  # within a sequential nothing is sent
            self._outputs[name] = node["outputs"]
