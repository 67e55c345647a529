"""The format of the Standard Task Graph Set: its layouts, round trips, and what is refused."""

import re

import pytest
from small import edges

from simsched.base.errors import FormatError, GraphError
from workloads.formats.stg import parse_stg, read_stg

SET = """          4
          0          0          0
          1         20          1          0
          2          7          1          0
          3          3          2          1          2
          4          1          1          3
          5          0          1          4
# Standard layout
#   Tasks : 4 (+ dummies)
"""

BENCH = "# 3 tasks on 4 processors\n  3 4\n  0 15 0\n  1 14 1\n    0 12\n  2 16 2\n    0 1.5\n    1 14\n"


def test_the_set():
    """Four tasks between an entry and an exit; 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3, 3 -> 4, 4 -> 5, all free."""
    graph = parse_stg(SET)
    assert graph.names == ("T0", "T1", "T2", "T3", "T4", "T5")
    assert graph.time.tolist() == [0, 20, 7, 3, 1, 0]
    assert list(graph.edges) == edges("T0-T1 T0-T2 T1-T3 T2-T3 T3-T4 T4-T5", transfer=0.0)


def test_without_dummies():
    graph = parse_stg(SET, keep_dummies=False)
    assert (graph.names, graph.inputs) == (("T1", "T2", "T3", "T4"), ("T1", "T2"))
    assert list(graph.edges) == edges("T1-T3 T2-T3 T3-T4", transfer=0.0)


def test_communication_on_lines_of_its_own():
    """In units of 2 us: times 30, 28, 32 us, transfers 24, 3, 28 us. There are no dummies to drop."""
    graph = parse_stg(BENCH, time_unit=2.0, keep_dummies=False)
    assert graph.time.tolist() == [30.0, 28.0, 32.0]
    assert list(graph.edges) == edges("T0-T1:24 T0-T2:3 T1-T2:28")


def test_communication_in_pairs():
    assert list(parse_stg("2 1\n0 5 0\n1 6 1 0 9").edges) == edges("T0-T1:9")


def test_the_prototype():
    """Tasks 1 and 2 and an exit, 3, from task 1 on; two processors."""
    text = "2 2\r\n1 14 0\r\n2 20 1 1\r\n3 0 1 2\r\n"
    graph = parse_stg(text, keep_dummies=False)
    assert (parse_stg(text).names, graph.names) == (("T1", "T2", "T3"), ("T1", "T2"))
    assert list(graph.edges) == edges("T1-T2:0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "line 1: expected the number of tasks, alone"),
        ("1000000000000\n0 0 0\n", "the file ends where task 1 of 1000000000002 rows"),
        ("1\n0 0 0\n2 5 1 0", "line 3: expected task 1"),
        ("1\n0 0 0\n1 nan 1 0", "line 3: expected task 1"),
        ("1\n0 0 0\n1 5 3 0", "task 1 has 3 predecessors, but 1 numbers follow"),
        ("1\n0 0 0\n1 5 1 3\n2 0 1 1", "task 1 names predecessor 3; there are tasks 0 to 2"),
        ("1\n0 0 0\n1 5 1 -1\n2 0 1 1", "expected a predecessor of task 1"),
        ("1\n0 0 0\n1 5 1 0\n2 0 1 1\n3 4 0", "line 5: a line more than announced: '3 4 0'"),
        ("2 2\n0 5 0\n1 6 1\n0", "line 4: expected a predecessor of task 1 and its cost, not '0'"),
        ("1 2\n1 5 1 0\n2 0 1 1", "task 1 names predecessor 0; there are tasks 1 to 2"),
    ],
)
def test_what_is_no_stg_is_refused(text, message):
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        parse_stg(text, "t.stg")
    assert str(caught.value).startswith("t.stg: not STG at line ")


def test_a_dummy_that_takes_time_is_none():
    with pytest.raises(FormatError, match="T2 takes time"):
        parse_stg("1\n0 0 0\n1 5 1 0\n2 3 1 1", keep_dummies=False)


def test_times_beyond_all_numbers_are_refused():
    with pytest.raises(GraphError, match="operator 'T1': time must be finite"):
        parse_stg("1\n0 0 0\n1 1e308 1 0\n2 0 1 1", time_unit=1000.0)


def test_a_file(tmp_path):
    """It names the graph."""
    path = tmp_path / "chain.stg"
    path.write_text(SET)
    assert read_stg(path) == parse_stg(SET, name="chain")
