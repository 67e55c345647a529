"""Which nodes of a captured graph wait for which: by hand, times in us."""

import pytest

from simsched.experiments.whatif import parse_change
from workloads.formats.kineto.captured import nodes_of
from workloads.formats.kineto.replay import replay_traced

FORK = ((300.0, 10.0, "stem", 7), (310.5, 19.5, "left", 7), (311.5, 8.5, "right", 13), (330.5, 5.0, "join", 7))


def launched(trace, nodes, call=10.0):
    correlation = trace.call("cudaGraphLaunch", call, 288.0)
    for start, length, name, stream in nodes:
        trace.kernel(correlation, start, length, name, stream=stream, grid=(8, 1, 1))


def starts(program, *changes):
    """Simulated starts in us without contention, in the order of the graph."""
    return replay_traced(program, [parse_change(change) for change in ("contention=false", *changes)]).starts[:, 1]


def test_a_fork_and_a_join(made):
    """`right` waits for `stem`, though `left` follows that on its stream; `join` waits for both branches.

    If `right` takes 34 us, it ends at 345.5: `join` starts 15 us after 330.5.
    """
    launched(made, FORK)
    program = made.program()
    edges = {(edge.src, edge.dst) for edge in program.graph.edges}
    assert edges == {("stem#0", "left#0"), ("stem#0", "right#0"), ("left#0", "join#0"), ("right#0", "join#0")}
    assert starts(program) == pytest.approx(program.times[:, 0], abs=1.5)
    later = starts(program, "operator.right#0.speed=0.25")
    assert later[3] - starts(program)[3] == pytest.approx(15.0, abs=2.0)  # and hops


def test_a_stream_that_runs_is_not_waited_for():
    """In ns: operator 3 starts long after operator 0 of its stream; it waits for 1, which has ended, not for 2."""
    start = [0, 10_000, 10_500, 42_000]
    end = [9_500, 40_000, 60_000, 50_000]
    (_, _, node) = nodes_of([0, 1, 2, 3], [0, 1, 2, 0], start, end)
    assert (node.op, node.previous, node.sources, node.lag) == (3, 0, (1,), 2_000)


def test_a_chain_waits_for_nothing():
    """Gaps of 0.5 us are the rule of this launch: none is of a wait, whatever ended on other streams meanwhile."""
    start = [10_500 * k for k in range(8)]
    end = [t + 10_000 for t in start]
    nodes = nodes_of([*range(8), 8], [*[0] * 8, 1], [*start, 10_100], [*end, 20_100])
    assert [node.sources for node in nodes[:-1]] == [()] * 7


def test_idle_between_nodes_is_held(made):
    """No host acts between two nodes: 20 us of an idle device are nobody's, and are kept."""
    launched(made, ((300.0, 10.0, "one", 7), (330.0, 10.0, "two", 7)))
    program = made.program()
    assert program.of_trace.untraced_us == pytest.approx(20.0, abs=0.1)
    assert starts(program)[1] == pytest.approx(program.times[1, 0], abs=1.0)
