"""Nodes of a captured network under other schedules, on a fake driver: legal, equal, and without the donor's order."""

from types import SimpleNamespace

import pytest
from donors import Network, dag, equal
from fake_driver import EDGE
from shortened import synths

from hwbackend.executor.ordering import edges_of
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model import LAUNCH, RECORD, WAIT, Schedule

PROGRAMS = 500
OF_A_NETWORK = 25


def drawn_program(network, number, execution=None):
    execution = execution or ("graph", "events", "stages")[number % 3]
    plan = random_schedule(network.graph, network.cluster, rng=number, streams=1 + number % 5, execution=execution)
    return plan.lower(network.cluster)


def order_of(program):
    """For each operator those that come before it under a program: of one host thread, by streams and events alone."""
    streams, events, before = {}, {}, {}
    columns = (program.action, program.stream, program.argument)
    for action, stream, argument in zip(*(column.tolist() for column in columns), strict=True):
        if action == LAUNCH:
            op = int(program.launches.op[argument])
            before.setdefault(op, set(streams.get(stream, ())))
            streams[stream] = streams.get(stream, set()) | before[op] | {op}
        elif action == RECORD:
            events[argument] = set(streams.get(stream, ()))
        elif action == WAIT:
            streams[stream] = streams.get(stream, set()) | events[argument]
    return before


def closure(count, edges):
    """For each node those that it comes after."""
    into = {node: [] for node in range(count)}
    for a, b in edges:
        into[b].append(a)
    found = {}

    def up(node):
        if node not in found:
            found[node] = set(into[node]).union(*map(up, into[node]))
        return found[node]

    return [up(node) for node in range(count)]


@pytest.mark.parametrize("part", range(5))
def test_every_schedule_runs_the_same_nodes_in_a_legal_order(part):
    """500 random programs of 20 networks: outputs are equal to the last bit, in random orders, on NaN."""
    for first in range(part * PROGRAMS // 5, (part + 1) * PROGRAMS // 5, OF_A_NETWORK):
        network = Network(dag(first), first)
        expected = network.expected()
        count = len(network.donor.nodes.nodes)
        for number in range(first, first + OF_A_NETWORK):
            program = drawn_program(network, number)
            with network.host(program) as host:
                for _ in range(2):
                    network.poison()
                    assert host.run() > 0.0
                    assert equal(network.values(), expected), number
        assert count == len(network.donor.nodes.nodes) == sum(len(part.nodes) for part in network.donor.parts)
        assert network.driver.live == 0, "a graph was not given back"


@pytest.mark.parametrize("number", range(0, PROGRAMS, 10))
def test_edges_are_those_of_the_schedule_and_no_others(number):
    """Node a comes before node b of another operator exactly if the program has their operators in that order."""
    network = Network(dag(number), number)
    program = drawn_program(network, number, "graph")
    parts = network.donor.parts
    owner = {node: op for op, part in enumerate(parts) for node in part.nodes}
    before = order_of(program)
    with network.host(program) as host:
        rows = network.driver.graphs[host._reordered._graph].edges
        place = {int(handle): i for i, handle in enumerate(host._reordered._nodes)}
        after = closure(len(owner), [(place[a], place[b]) for a, b in rows])
    inside = [closure(len(owner), part.edges) for part in parts]
    for node, op in owner.items():
        wanted = {other for other, at in owner.items() if at in before[op] and at != op}
        assert after[node] == wanted | inside[op][node], (number, node)
    assert set(edges_of(program, parts)) >= {edge for part in parts for edge in part.edges}


def test_a_missing_edge_is_seen():
    """The fake runs nodes in any order: without one of the edges between operators a value is not a number at last."""
    network = Network(dag(1), 1)
    program = drawn_program(network, 1, "graph")
    expected, donor = network.expected(), network.donor
    edges = edges_of(program, donor.parts)
    between = [edge for edge in edges if not any(edge in part.edges for part in donor.parts)]
    after = [closure(len(donor.nodes.nodes), [e for e in edges if e != edge])[edge[1]] for edge in between]
    seen = 0
    for edge, known in zip(between, after, strict=True):
        if edge[0] in known:
            continue  # another way leads there
        graph = donor.nodes.reorder([other for other in edges if other != edge], {})
        runs = []
        for _ in range(40):
            network.poison()
            graph.launch(network.donor._host.origin)
            network.cuda.synchronize()
            runs.append(equal(network.values(), expected))
        graph.close()
        seen += not all(runs)
    assert seen > 3


def test_workspaces_are_not_shared_by_operators_that_may_overlap():
    """Each operator is captured on a stream of its own, so that a workspace of a stream belongs to one operator."""
    network = Network(dag(3, 40), 3)
    host = network.donor._host
    assert len({host.stream((0, op)) for op in range(40)}) == 40


def test_priorities_of_streams_are_those_of_their_kernels():
    """The more urgent of two streams gets -1, the other 0; copies have none."""
    graph = dag(5)
    network = Network(graph, 5)
    names = [graph.names[i] for i in graph.order_index.tolist()]
    plan = Schedule.from_columns(
        graph,
        graph.order_index,
        ("gpu0",),
        stream=[i % 2 for i in range(len(names))],
        priority=[i % 2 for i in range(len(names))],
        execution="graph",
    )
    program = plan.lower(network.cluster)
    with network.host(program) as host:
        works = network.driver.graphs[host._reordered._graph].works
        for i, op in enumerate(graph.order_index.tolist()):
            for node in network.donor.parts[op].nodes:
                work = works[host._reordered._nodes[node]]
                if work.kind == "KERNEL":
                    assert work.attributes["PRIORITY"].priority == (0 if i % 2 else -1)


def test_launch_shapes_are_those_of_the_nodes():
    """5 x 2 blocks of 64 threads, 40 registers, 256 + 128 bytes; two kernels share the time; a view keeps none."""
    graph = dag(2)
    network = Network(graph, 2)
    found = network.donor.with_kernels(graph)
    for op, (old, new) in enumerate(zip(graph.operators, found.operators, strict=True)):
        shapes = [(k.blocks, k.threads, k.registers, k.shared_memory, k.share) for k in new.kernels]
        if network.donor.parts[op].nodes:
            count = 2 if op % 5 == 1 else 1
            assert shapes == [(10, 64, 40, 384, 1 / count)] * count
        else:
            assert new.kernels == old.kernels


PDL = SimpleNamespace(programmaticStreamSerializationAllowed=1)
EVENT = SimpleNamespace(launchCompletionEvent=SimpleNamespace(event=7))


def tied(name, attribute):
    def extra(network, op, stream):
        if op == 2:
            network.driver.kernel(stream, lambda memory, arguments: None, (), **{name: attribute})

    return extra


def other(kind):
    return lambda network, op, stream: network.driver.other(stream, kind) if op == 2 else None


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (tied("LAUNCH_COMPLETION_EVENT", EVENT), "the attribute launch_completion_event"),
        (other("WAIT_EVENT"), "a node of type wait_event"),
        (other("CONDITIONAL"), "a node of type conditional"),
        (other("MEM_ALLOC"), "the capture allocates memory, so that no node can be taken out of it"),
    ],
)
def test_operators_that_cannot_be_moved_are_named(extra, reason):
    network = Network(dag(2), 2, extra=extra)
    assert network.donor.obstacles == {"op2": reason}
    assert network.donor.whole == {}
    with pytest.raises(BackendError, match=f"operator 'op2' has {reason}, which cannot be moved$"):
        network.host(drawn_program(network, 0))


def with_host_calls(network, op, stream):
    """Of operators 2, 5 and 8 a call of the host writes what the rest of the operator reads."""
    if op in (2, 5, 8):
        memory = network.driver.memory
        reads = [network.output[read] for read in network.reads[op]]
        staged = STAGED + 4 * op
        network.driver.host(stream, lambda: memory.update({staged: sum(memory[address] for address in reads)}))
        network.driver.kernel(stream, halve, (staged,), **{EDGE: 1}, PROGRAMMATIC_STREAM_SERIALIZATION=PDL)


def halve(memory, arguments):
    memory[arguments[0]] /= 2


STAGED = 9 << 20


@pytest.mark.parametrize("execution", ["graph", "events", "stages"])
def test_an_operator_that_cannot_be_taken_apart_is_a_graph_of_its_own(execution):
    """Calls of the host and programmatic edges within an operator: it is one node, or one launch, under any schedule.

    All others move as ever. Outputs are those of the operators in a row, in 60 random programs, on NaN.
    """
    for first in range(0, 60, 15):
        network = Network(dag(first), first, extra=with_host_calls)
        expected = network.expected()
        assert set(network.donor.whole) == {"op2", "op5", "op8"}
        assert network.donor.whole["op2"] == "a node of type host"
        assert network.donor.obstacles == {}
        staged = None
        for number in range(first, first + 15):
            program = drawn_program(network, number, execution)
            with network.host(program) as host:
                assert host.whole == network.donor.whole
                assert host.profiled_marks() is None
                for _ in range(2):
                    network.poison()
                    assert host.run() > 0.0
                    assert equal(network.values(), expected), number
                    values = [network.driver.memory[STAGED + 4 * op] for op in (2, 5, 8)]
                    staged = staged or values
                    assert values == staged
        network.donor.close()
        assert network.driver.live == 0, "a graph was not given back"


def test_a_unit_comes_after_what_the_schedule_says_and_before_the_rest():
    """Node a comes before node b of another operator exactly if the program has their operators in that order."""
    for number in range(0, 60, 4):
        network = Network(dag(number), number, extra=with_host_calls)
        donor = network.donor
        program = drawn_program(network, number, "graph")
        before = order_of(program)
        parts = donor.movable_parts
        owner = {node: op for op, part in enumerate(parts) for node in part.nodes}
        after = closure(max(owner) + 1, edges_of(program, parts))
        inside = [closure(max(owner) + 1, part.edges) for part in parts]
        for node, op in owner.items():
            wanted = {other for other, at in owner.items() if at in before[op] and at != op}
            assert after[node] == wanted | inside[op][node], (number, node)
        with network.host(program) as host:
            graph = network.driver.graphs[host._reordered._graph]
            kinds = [work.kind for work in graph.works.values()]
            assert kinds.count("GRAPH") == len(donor.units) == 3
            assert "HOST" not in kinds
            within = [work.parameters for work in graph.works.values() if work.kind == "GRAPH"]
            assert sorted(len(child.works) for child in within) == sorted(
                len(unit.nodes) for unit in donor.units.values()
            )
            assert all(1 in child.edges.values() for child in within), "a programmatic edge was lost"


def test_priorities_hold_within_units():
    """The kernels of a unit have the priority of their stream under each schedule, whatever the schedule before had."""
    network = Network(dag(5), 5, extra=with_host_calls)
    graph = network.graph
    order = graph.order_index.tolist()
    for urgent in (0, 1):
        plan = Schedule.from_columns(
            graph,
            order,
            ("gpu0",),
            stream=[i % 2 for i in range(len(order))],
            priority=[(i + urgent) % 2 for i in range(len(order))],
            execution="graph",
        )
        with network.host(plan.lower(network.cluster)) as host:
            works = network.driver.graphs[host._reordered._graph].works.values()
            children = [work.parameters.works.values() for work in works if work.kind == "GRAPH"]
            seen = [
                {work.attributes["PRIORITY"].priority for work in child if work.kind == "KERNEL"} for child in children
            ]
        wanted = [{-1 if (order.index(op) + urgent) % 2 == 0 else 0} for op in network.donor.units]
        assert seen == wanted


def test_an_operator_whose_node_has_no_call_is_launched_as_a_graph():
    """A copy of two rows can be moved, but has no packed call: its operator is one launch, and the result says so."""
    network = Network(dag(1), 1)
    expected = network.expected()
    copies = [
        work for graph in network.driver.graphs.values() for work in graph.works.values() if work.kind == "MEMCPY"
    ]
    copies[0].parameters = copies[0].parameters._replace(Height=2)
    with network.host(drawn_program(network, 3, "graph")) as host:
        assert host.whole == {}
    with network.host(drawn_program(network, 3, "events")) as host:
        assert list(host.whole.values()) == ["a copy of the host, or of several rows"]
        network.poison()
        host.run()
        assert equal(network.values(), expected)
    network.donor.close()
    assert network.driver.live == 0


def test_a_programmatic_edge_to_another_operator_holds_both_of_its_ends():
    """An edge of type 1 begins before its first end has ended: both operators keep the order of their capture."""
    network = Network(dag(2), 2)
    graph = network.driver.graphs[network.donor.nodes._graph]
    edge = next((a, b) for a, b in graph.edges if a != b)
    graph.edges[edge] = 1
    again = type(network.donor.nodes)(network.driver, network.donor.nodes._graph)
    held = [node for node in range(len(again.nodes)) if again.obstacle(node)]
    assert sorted(again.nodes[node] for node in held) == sorted(edge)
    assert again.obstacle(held[0]) == "a programmatic dependency (PDL)"
    assert again.unit_obstacle(held[:1]) == "a programmatic dependency (PDL) on another operator"
    assert again.unit_obstacle(held) is None


def test_stamps_are_around_each_operator():
    """A chain of three on one stream: spans follow each other, and a kernel of the fake takes 10 us."""
    graph = synths(["op0", "op1", "op2"], [])
    network = Network(graph)
    plan = Schedule.from_columns(graph, [0, 1, 2], ("gpu0",))
    with network.host(plan.lower(network.cluster), stamped=True) as host:
        host.run()
        spans, _ = host.spans()
    assert (spans[:, 1] - spans[:, 0]).tolist() == [10.0, 30.0, 20.0]
    assert spans[0, 1] <= spans[1, 0]
    assert spans[1, 1] <= spans[2, 0]


def test_kernels_with_clusters_keep_them_in_packed_calls():
    network = Network(dag(4), 4)
    program = drawn_program(network, 4, "events")
    with network.host(program) as host:
        network.driver.clusters.clear()
        host.run()
    kernels = sum(network.donor.nodes.type_of(node) == "KERNEL" for part in network.donor.parts for node in part.nodes)
    assert len(network.driver.clusters) == kernels
    assert sum(network.driver.clusters) == sum(op % 5 == 4 for op in range(len(network.graph)))


def test_nodes_are_known_to_a_profiler_by_their_operators():
    """The ids of nodes ascend with their handles in the fake, in the order in which they were cloned."""
    network = Network(dag(6), 6)
    with network.host(drawn_program(network, 6, "graph")) as host:
        marks = host.profiled_marks()
        handles = [int(handle) for handle in host._reordered._nodes]
    owner = {
        handles[node]: name
        for name, part in zip(network.graph.names, network.donor.parts, strict=True)
        for node in part.nodes
    }
    assert marks == [owner[handle] for handle in sorted(handles)]
