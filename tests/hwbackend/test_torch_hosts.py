"""Programs on CUDA as far as can be seen without: the order of calls, and the rules of capture."""

import pytest
from fake_torch_cuda import FakeCuda, RuleError
from hypothesis import given
from hypothesis import strategies as st
from shortened import without

import simsched as ss
import workloads
from hwbackend.torch_hosts import CpuHost, CudaHost, issue_order
from simsched.calibration.training import random_schedule
from simsched.model import WAIT, Edge, Operator, OpGraph


def chains(n_chains, length):
    """Chains of operators from one to one."""
    names = [f"c{i}.{k}" for i in range(n_chains) for k in range(length)]
    edges = [Edge("first", f"c{i}.0", 4.0) for i in range(n_chains)]
    edges += [Edge(f"c{i}.{k}", f"c{i}.{k + 1}", 4.0) for i in range(n_chains) for k in range(length - 1)]
    edges += [Edge(f"c{i}.{length - 1}", "last", 4.0) for i in range(n_chains)]
    return OpGraph([Operator(name, time=1.0, utilization=0.2) for name in ("first", *names, "last")], edges)


class Recorded:
    """Operators and copies that refuse to run before what they read is there."""

    def __init__(self, api, program):
        self.api, self.program = api, program
        self.done, self.copied = [], []

    def compute(self, i):
        self.api.work(lambda: self.run(i))

    def move(self, row):
        self.api.work(lambda: self.copy(row))

    def run(self, i):
        graph = self.program.graph
        missing = [graph.names[p] for p in graph.src[graph.dst == i].tolist() if p not in self.done]
        assert missing == [], f"{graph.names[i]} ran before {missing}"
        self.done.append(i)

    def copy(self, row):
        assert self.program.copies.op[row] in self.done
        self.copied.append(row)


def host(program, order, **options):
    api = FakeCuda(order)
    recorded = Recorded(api, program)
    return api, recorded, CudaHost(api, program, recorded.compute, recorded.move, **options)


@given(
    seed=st.integers(0, 10_000), execution=st.sampled_from(["events", "graph", "stages"]), n=st.integers(1, 3),
    order=st.sampled_from([1, -1]), events=st.sampled_from(["minimal", "literal"]),
)  # fmt: skip
def test_every_operator_runs_after_what_it_reads(seed, execution, n, order, events):
    """Whatever stream the device serves first."""
    graph = workloads.random_layered(n_ops=14, n_layers=4, rng=seed)
    cluster = ss.Cluster.preset("a100", 1 if execution == "graph" else n)
    program = random_schedule(graph, cluster, rng=seed, execution=execution).lower(cluster, events=events)
    _, recorded, made = host(program, order)
    assert made.run() > 0
    assert sorted(recorded.done) == list(range(14))
    assert sorted(recorded.copied) == list(range(len(program.copies.op)))
    if execution == "graph":
        recorded.done.clear()
        made.capture()
        assert recorded.done == []
        for _ in range(2):
            recorded.done.clear()
            assert made.run() > 0
            assert sorted(recorded.done) == list(range(14))


def test_a_wait_that_is_missing_is_noticed_by_the_fake():
    """Without its waits the last operator overtakes a chain on another stream."""
    graph = chains(2, 2)
    plan = ss.Schedule(graph, [ss.Placement(op, stream=int(op[1])) if op[0] == "c" else ss.Placement(op)
                               for op in graph.order])  # fmt: skip
    cluster = ss.Cluster.preset("a100")
    program = plan.lower(cluster)
    host(program, 1)[2].run()
    with pytest.raises(AssertionError, match="last ran before"):
        host(without(program, program.action == WAIT), 1)[2].run()


def test_streams_have_the_priority_of_their_most_urgent_operator():
    graph = chains(1, 2)
    rows = [ss.Placement("first", priority=-1), ss.Placement("c0.0", priority=-3), ss.Placement("c0.1", stream=1),
            ss.Placement("last", stream=1, priority=-2)]  # fmt: skip
    program = ss.Schedule(graph, rows).lower(ss.Cluster.preset("a100"))
    api, _, _ = host(program, 1)
    assert [stream.priority for stream in api.streams][:2] == [-3, -2]


def test_all_is_made_before_a_capture_and_kept():
    """The only calls while a graph is captured are work, records and waits; afterwards a launch does it all."""
    graph = chains(3, 3)
    program = ss.schedule(graph, ss.Cluster.preset("a100"), "opara").lower(ss.Cluster.preset("a100"))
    assert program.execution == "graph"
    api, _, made = host(program, -1)
    made.run()
    before = len(api.calls)
    made.capture()
    during = api.calls[before:]
    start = during.index("graph") + 2  # the graph is made, and the device drained, before
    assert set(during[start:]) == {"work", "record", "wait"}
    assert during[start:].count("work") == len(graph)
    before = len(api.calls)
    made.run()
    assert api.calls[before:].count("work") == 0
    assert api.calls[before:].count("launch") == 1


def test_the_fake_keeps_the_rules_of_capture():
    api = FakeCuda()
    origin, side, event, other = api.stream(0, 0), api.stream(0, 0), api.event(), api.event()
    with pytest.raises(RuleError, match="synchronize while"), api.capture(api.graph(), origin):
        api.synchronize(0)
    graph = api.graph()
    with pytest.raises(RuleError, match="not part of the capture"), api.capture(graph, origin), api.on(side):
        api.work(print)
    api.record(other, side)
    with pytest.raises(RuleError, match="outside the capture"), api.capture(graph, origin):
        api.wait(side, other)

    def fork():
        with api.capture(graph, origin):
            api.record(event, origin)
            api.wait(side, event)
            with api.on(side):
                api.work(print)

    with pytest.raises(RuleError, match="not joined"):
        fork()


def test_a_barrier_waits_for_the_device_and_not_for_other_threads():
    """Stages on two devices: while one is waited for, the other's thread goes on issuing."""
    graph = OpGraph([Operator(name, time=1.0) for name in "abcd"], [])
    rows = [ss.Placement("a", "gpu0", 0), ss.Placement("b", "gpu0", 1, 0, 1), ss.Placement("c", "gpu0", 0, 1),
            ss.Placement("d", "gpu1")]  # fmt: skip
    cluster = ss.Cluster.preset("a100", 2)
    program = ss.Schedule(graph, rows, execution="stages").lower(cluster)
    _, recorded, made = host(program, 1)
    issued = []
    usual = made.launch
    made.launch = lambda row, device, stream: (issued.append(program.graph.names[program.launch_op[row]]),
                                               usual(row, device, stream))  # fmt: skip
    made.run()
    assert issued == ["a", "b", "d", "c"]
    assert recorded.done.index(2) > max(recorded.done.index(0), recorded.done.index(1))


def test_events_around_operators_give_their_spans():
    """The fake's clock ticks once for each item: record, operator, record."""
    graph = chains(1, 1)
    program = ss.schedule(graph, ss.Cluster.preset("a100"), "sequential").lower(ss.Cluster.preset("a100"))
    _, _, made = host(program, 1, timed=True)
    made.run()
    operators, copies = made.spans()
    assert (operators[:, 1] - operators[:, 0]).tolist() == [2.0, 2.0, 2.0]
    assert operators[0, 0] < operators[1, 0] < operators[2, 0]
    assert copies.shape == (0, 2)


def test_one_core_runs_what_is_issued_at_once():
    graph = chains(2, 1)
    cluster = ss.Cluster.preset("a100", 2)
    program = ss.schedule(graph, cluster, "round-robin").lower(cluster)
    ran = []
    made = CpuHost(program, lambda i: ran.append(graph.names[i]), lambda row: ran.append(f"copy {row}"))
    total = made.run()
    assert len(ran) == len(graph) + len(program.copies.op)
    assert len(program.copies.op) > 0
    place = {what: at for at, what in enumerate(ran)}
    assert all(place[edge.src] < place[edge.dst] for edge in graph.edges)
    assert 0 <= made.operators.min() <= made.operators.max() <= total
    assert (made.copies[:, 1] >= made.copies[:, 0]).all()


def test_marks_are_in_order_of_issue():
    graph = chains(1, 1)
    program = ss.schedule(graph, ss.Cluster.preset("a100"), "sequential").lower(ss.Cluster.preset("a100"))
    assert issue_order(program) == ["first", "c0.0", "last"]
