"""Collectives of a graph: which operators are ranks of one, what is refused, and that files and edits keep them."""

import re
from dataclasses import replace

import numpy as np
import pytest

import simsched as ss
from simsched.experiments.study.evaluate import graph_digest
from simsched.model.graph.beside import side_by_side
from simsched.model.graph.rearranged import rearrange

RING = ss.Collective("all_reduce", 1e6, 2, "g", "ring")
GRAPH = ss.OpGraph(
    [
        ss.Operator("a", time=1.0),
        ss.Operator("r", collective=RING),
        ss.Operator("s", collective=RING),
        ss.Operator("t", collective=ss.Collective("all_gather", 5.0, 8)),
        ss.Operator("u", collective=ss.Collective("all_gather", 5.0, 8)),
    ],
    [ss.Edge("a", "r")],
)


def test_ranks_of_a_group_are_one_and_others_stand_for_themselves():
    """r and s are the two ranks of g; t and u have no group: each is a collective by itself."""
    assert [(meeting.members, meeting.is_symmetric) for meeting in GRAPH.meetings] == [
        ((1, 2), False),
        ((3,), True),
        ((4,), True),
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"operation": "gather"},
            "operation must be one of all_reduce, all_gather, reduce_scatter, all_to_all, send_recv",
        ),
        ({"bytes": 0.0}, "bytes must be finite and positive, not 0.0"),
        ({"ranks": 1}, "ranks must be a whole number from 2 to 4,096, not 1"),
        ({"algorithm": "direct"}, "algorithm must be one of ring, tree, nvls, one_shot, not 'direct'"),
        ({"operation": "send_recv", "ranks": 3}, "ranks must be 2, not 3"),
        ({"group": ""}, "group must be a text that is not empty"),
    ],
)
def test_what_is_no_collective_is_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ss.Collective(**{"operation": "all_reduce", "bytes": 1.0, "ranks": 4} | fields)


@pytest.mark.parametrize(
    "fields",
    [{"utilization": 0.5}, {"kernels": (ss.Kernel(1, share=0.5), ss.Kernel(1, share=0.5))}],
)
def test_a_collective_is_nothing_else(fields):
    with pytest.raises(ValueError, match="a collective has neither works nor utilization, and one kernel at most"):
        ss.Operator("r", collective=RING, **fields)


@pytest.mark.parametrize(
    ("collectives", "message"),
    [
        ([RING, replace(RING, bytes=2e6)], "operators 'o0' and 'o1' are ranks of group 'g': make them one collective"),
        ([RING] * 3, "group 'g' has 3 operators: give it 2, one for each rank, or one that stands for all"),
    ],
)
def test_ranks_that_do_not_agree_are_refused(collectives, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ss.OpGraph([ss.Operator(f"o{i}", collective=each) for i, each in enumerate(collectives)])


def test_files_and_edits_keep_them():
    assert ss.OpGraph.from_dict(GRAPH.to_dict()) == GRAPH
    none = np.zeros(0)
    kept = rearrange(GRAPH, [2, 1, 3], none.astype(int), none.astype(int), none, none)
    assert [op.collective for op in kept.operators] == [RING, RING, GRAPH["t"].collective]
    assert kept.meetings[0].members == (0, 1)
    codes = ([0, 1, 1], (None, RING))
    assert ss.OpGraph.from_columns(["a", "r", "s"], [], [], collectives=codes).meetings[0].members == (1, 2)


def test_copies_of_a_graph_have_groups_of_their_own():
    twice = side_by_side(GRAPH, np.ones(5), 2, np.zeros(0))
    groups = [meeting.collective.group for meeting in twice.meetings if not meeting.is_symmetric]
    assert groups == ["g@0", "g@1"]


def test_digests_of_graphs_without_collectives_stay_what_they_were():
    plain = ss.OpGraph([ss.Operator("a", time=1.0)])
    assert graph_digest(plain) == "726a31bb379c59a8d75c3c56e3431b8b87ef031df843408a0ef791ecfae950eb"
    assert graph_digest(ss.OpGraph(GRAPH.operators[3:4])) != graph_digest(ss.OpGraph(GRAPH.operators[4:]))
    changed = replace(GRAPH["t"], collective=replace(GRAPH["t"].collective, ranks=4))
    assert graph_digest(ss.OpGraph([changed])) != graph_digest(ss.OpGraph([GRAPH["t"]]))
