"""Graphs and schedules of IOS, the inter-operator scheduler, as its released code writes them.

One JSON file holds the graph that runs and, block by block, the stages that run it. Its form was read
in `ios/ir.py` of [1]_ (`Graph.export_config` and `Graph.from_config`) and tried on the schedules for
Inception v3 that stand beside it.

Operators
    A schedule unit of the file is an operator here, under its name. An input is a sum of values, and
    several of them one behind the other: what adds and concatenates in front of an operator is part of
    it, with a work of its own (`attributes["parts"]`, see `workloads.models.network.Network.unit`).
    An `identity` is of kind "concat" or "add" if that is all it does, and "identity" if it copies or does
    both; `element` is "add" or "mul", `activation` goes by the name of its function. A `sequential` is one
    operator with the works of its nodes. The name that the file shows to people is kept as
    `attributes["hint_name"]` if it differs: that of a convolution merged from several has all their names.

Edges
    One for each value that an operator reads from another, of the bytes of its channels.

Blocks
    "block0", "block1", ...: the file does not name them, nor record the parts that long ones were cut into.

References
----------
.. [1] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-operator scheduler for CNN acceleration", MLSys 2021,
   arXiv:2011.01302; code at https://github.com/mit-han-lab/inter-operator-scheduler (MIT licence).
"""

import os

from simsched.base.errors import FormatError
from simsched.base.io import read_json
from simsched.model import OpGraph, Placement, Schedule
from workloads.formats.ios_hios.graph_reader import Block, GraphReader, Stages, stage_lists
from workloads.retired import refusing_retired


@refusing_retired
def read_ios_graph(path: str | os.PathLike[str], *, batch: int = 1, dtype: str = "fp32") -> OpGraph:
    """Read the graph of a file of IOS, whether or not it holds stages.

    Parameters
    ----------
    path
        The file.
    batch
        Images at a time; the file does not record it.
    dtype
        Number format of tensors and weights, which is not recorded either; IOS itself runs fp32.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not such a file; the message names the operator and the field. Shapes are worked out
        anew, and an `output_shape` that contradicts them is refused. An operator may only read what
        stands before it, as in IOS itself, so there can be no cycle.
    GraphError
        If an operator cannot be, such as a window that is larger than the image.

    Notes
    -----
    Fields that the format does not have are passed over. O(size of the file).
    """
    return GraphReader(read_json(path), str(path), batch, dtype).graph


@refusing_retired
def read_ios(
    path: str | os.PathLike[str],
    *,
    batch: int = 1,
    dtype: str = "fp32",
    on: str = "gpu0",
) -> OpGraph | Schedule:
    """Read what a file of IOS holds: a schedule with its graph, or the graph alone if no block has stages.

    Parameters
    ----------
    path, batch, dtype
        As for `read_ios_graph`.
    on
        Name of the device that everything is placed on.

    Returns
    -------
    OpGraph or Schedule
        The schedule is of `execution` "stages". Stages are numbered through all blocks; the groups of a stage are
        numbered as they stand, group j on stream j. The launch order is that of IOS's engine: stage
        by stage, group by group.

    Raises
    ------
    FileError, FormatError, GraphError
        As for `read_ios_graph`; also if a block has no stages where another has, or its stages name an operator that
        is not in the block, name one twice or leave one out.

    Notes
    -----
    The stages are given as they are: whether they respect every dependency is not looked into, since
    other tools write such that do not. `Schedule.check` names the first that is broken, and
    `simulate` refuses it.
    """
    reader = GraphReader(read_json(path), str(path), batch, dtype)
    if all(block.stages is None for block in reader.blocks):
        return reader.graph
    rows: list[Placement] = []
    stage = 0
    for block in reader.blocks:
        for groups in _stages(block):
            rows += [Placement(op, on, j, stage, j) for j, group in enumerate(groups) for op in group]
            stage += 1
    return Schedule(reader.graph, rows, "stages", scheduler="ios")


def _stages(block: Block) -> Stages:
    """Return the stages of a block, in which each of its operators stands once."""
    if block.stages is None:
        raise FormatError(f"{block.where}: field 'stages' is missing; a graph alone is read with read_ios_graph")
    stages = stage_lists(block.stages, block.where)
    block.require_once(op for groups in stages for group in groups for op in group)
    return stages
