"""The memory of the compiled search over a part.

Operators of a part are numbered topologically from 0. A state is what is still to be scheduled: with an
operator it holds all those that it reads from. Stages are taken off its end, so what they leave is a state again.
"""

from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length

FORMULA, COLLECT, LOOK_UP = range(3)
"""What `mode` asks for: costs by formula, the distinct stages only, or costs of these."""
STAGES, LOOKS, FIRST_NODE = range(3)
"""Nodes that all stages, and all looks of stages, extend; and the first that extends one of them."""
END_OF_STAGE: Final = -1


class State(Row):
    """Its cells, by falling operator: those of `cells` from `start` to `end`.

    It is state `origin` without the operator of that state's cell `offset`; from the cell `offset` on its own cells are
    below that operator.
    """

    start: i4
    end: i4
    offset: i4
    origin: i4


class Cell(Row):
    """An operator that may be taken off a state, the state without it, and the cells of that below the operator."""

    operator: i4
    rest: i4
    start: i4
    end: i4


class Value(Row):
    """The fastest way to run a state: us to the end, the state after its stage, and what that merges or -1.

    Also how many ways there are, as a float and modulo 2^64.
    """

    cost: f8
    count: f8
    count_modulo: i8
    next: i4
    merge: i4


class Group(Row):
    """An operator that is taken off, and if `parent` is itself, the group of which it is the first.

    `n_sources` of those that it reads from are taken too; `n_roots` operators of the group read from none in the stage.
    """

    time: f8
    size: i4
    n_roots: i4
    n_sources: i4
    parent: i4


class Frame(Row):
    """A step of the search: the operator taken, the stage it makes, and the cells that are still to be tried.

    `longest` is the time of the longest group, `n_unrooted` how many groups have several roots, and `trail` how many
    groups have joined others so far.
    """

    longest: f8
    cell: i4
    end: i4
    operator: i4
    n_groups: i4
    n_unrooted: i4
    trail: i4
    node: i4


class Node(Row):
    """A node of the prefix tree of stages and looks: the node it extends and by what, as one number.

    `asked` is the number of the stage to ask for, from 1; or 0. `cost` is the answer.
    """

    key: i8
    cost: f8
    asked: i4


class Run(Table):
    """What the search works on; where a number `n_...` and `margin` exceed the room, it returns for more."""

    n_ops: i8
    n_words: i8
    mode: i8
    most_ops: i8
    most_groups: i8
    single_root: i8
    state: i8
    cell: i8
    depth: i8
    left: i8
    n_endings: i8
    n_merges: i8
    n_merged_endings: i8
    n_stages: i8
    n_asked: i8
    margin: i8
    n_states: i8
    states_room: i8
    n_cells: i8
    cells_room: i8
    n_nodes: i8
    nodes_room: i8
    n_written: i8
    written_room: i8
    time: Column[f8]
    classes: Column[i4]  # operators of a class look the same to the stage latency
    fewer: Column[i4]  # by how many the operators before this one can lessen the groups of a stage
    factor: Column[f8]  # of a stage by its number of groups; the constant stands first
    reader_ptr: Column[i4]
    readers: Column[i4]
    source_ptr: Column[i4]
    sources: Column[i4]  # falling
    merge_ptr: Column[i4]
    merged: Column[i4]  # falling
    merge_cost: Column[f8]
    masks: Column[i8] = length("states_room * n_words")
    states: Rows[State] = length("states_room")
    cells: Rows[Cell] = length("cells_room")
    values: Rows[Value]
    frames: Rows[Frame] = length("n_ops + 1")
    groups: Rows[Group] = length("n_ops")
    joined: Column[i4] = length("n_ops")
    within_ptr: Column[i4] = length("n_ops + 1")
    within: Column[i4]  # who reads from an operator in the state that is open
    nodes: Rows[Node] = length("nodes_room")
    slots: Column[i4] = length("2 * nodes_room")  # a hash table of nodes by key; rooms of nodes are powers of 2
    written: Column[i4] = length("written_room")  # the stages to ask for, operators as in `drafted`
    drafted: Column[i4] = length("n_ops")  # 2 * operator + 1, of the last in a group 2 * operator
    group_at: Column[i4] = length("n_ops")
