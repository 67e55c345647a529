"""Programs on CUDA as far as can be seen without: the order of calls, and the rules of capture."""

from fake_cuda import FakeTorchCuda
from hypothesis import given
from hypothesis import strategies as st

import simsched as ss
import workloads
from hwbackend.torch_hosts import CpuHost, CudaHost, issue_order
from simsched.calibration.training import random_schedule
from simsched.model import Edge, Operator, OpGraph

A100 = ss.Cluster.preset("a100")
CHAIN = OpGraph([Operator(name, time=1.0) for name in "abc"], [Edge("a", "b", 4.0), Edge("b", "c", 4.0)])


class Recorded:
    """Operators and copies that refuse to run before what they read is there."""

    def __init__(self, program, **options):
        self.program, self.done, self.copied = program, [], []
        self.api = FakeTorchCuda(len(program.devices), options.pop("rng", 0))
        self.host = CudaHost(
            self.api, program, lambda i: self.api.work(lambda: self.run(i)),
            lambda row: self.api.work(lambda: self.copy(row)), **options,
        )  # fmt: skip

    def run(self, i):
        graph = self.program.graph
        missing = [graph.names[p] for p in graph.src[graph.dst == i].tolist() if p not in self.done]
        assert missing == [], f"{graph.names[i]} ran before {missing}"
        self.done.append(i)

    def copy(self, row):
        assert self.program.copies.op[row] in self.done
        self.copied.append(row)


@given(
    seed=st.integers(0, 10_000), execution=st.sampled_from(["events", "graph", "stages"]), n=st.integers(1, 3),
    events=st.sampled_from(["minimal", "literal"]),
)  # fmt: skip
def test_every_operator_runs_after_what_it_reads(seed, execution, n, events):
    """In whatever order streams go on. In a capture there is nothing but work, records and waits, none of it run; a
    launch then does it all."""
    graph = workloads.random_layered(n_ops=14, n_layers=4, rng=seed)
    cluster = ss.Cluster.preset("a100", 1 if execution == "graph" else n)
    program = random_schedule(graph, cluster, rng=seed, execution=execution).lower(cluster, events=events)
    recorded = Recorded(program, rng=seed)
    host, cuda = recorded.host, recorded.api.cuda
    assert host.run() > 0
    assert sorted(recorded.done) == list(range(14))
    assert sorted(recorded.copied) == list(range(len(program.copies.op)))
    if execution == "graph":
        recorded.done.clear()
        cuda.calls.clear()
        host.capture()
        names = [call[0] for call in cuda.calls]
        during = names[names.index("begin_capture") + 1 : names.index("end_capture")]
        assert set(during) <= {"set_device", "record", "wait", "event"}
        assert recorded.done == []
        for launches in (1, 2):
            recorded.done.clear()
            assert host.run() > 0
            assert sorted(recorded.done) == list(range(14))
            assert (cuda.count["launch_graph"], cuda.count["work"]) == (launches, 2 * 14)


def test_streams_have_the_priority_of_their_most_urgent_operator():
    rows = [ss.Placement("a", priority=-1), ss.Placement("b", priority=-3), ss.Placement("c", stream=1, priority=-2)]
    recorded = Recorded(ss.Schedule(CHAIN, rows).lower(A100))
    assert [stream.priority for stream in recorded.api.cuda._streams.values()][:2] == [-3, -2]


def test_a_barrier_waits_for_the_device_and_not_for_other_threads():
    """Stages on two devices: while one is waited for, the other's thread goes on issuing."""
    graph = OpGraph([Operator(name, time=1.0) for name in "abcd"], [])
    rows = [ss.Placement("a", "gpu0", 0), ss.Placement("b", "gpu0", 1, 0, 1), ss.Placement("c", "gpu0", 0, 1),
            ss.Placement("d", "gpu1")]  # fmt: skip
    recorded = Recorded(ss.Schedule(graph, rows, execution="stages").lower(ss.Cluster.preset("a100", 2)))
    issued, usual = [], recorded.api.work

    def work(action):
        issued.append(recorded.host.at)
        usual(action)

    recorded.api.work = work
    recorded.host.run()
    assert issued == ["a", "b", "d", "c"]
    assert recorded.done.index(2) > max(recorded.done.index(0), recorded.done.index(1))


def test_events_around_operators_give_their_spans():
    """10 us each."""
    program = ss.schedule(CHAIN, A100, "sequential").lower(A100)
    host = Recorded(program, timed=True).host
    host.run()
    operators, copies = host.spans()
    assert (operators[:, 1] - operators[:, 0]).tolist() == [10.0] * 3
    assert operators[0, 0] < operators[1, 0] < operators[2, 0]
    assert copies.shape == (0, 2)
    assert issue_order(program) == ["a", "b", "c"]


def test_one_core_runs_what_is_issued_at_once():
    cluster = ss.Cluster.preset("a100", 2)
    program = ss.schedule(CHAIN, cluster, "round-robin").lower(cluster)
    ran = []
    made = CpuHost(program, ran.append, lambda row: ran.append(f"copy {row}"))
    total = made.run()
    assert ran == [0, "copy 0", 1, "copy 1", 2]
    assert 0 <= made.operators.min() <= made.operators.max() <= total
    assert (made.copies[:, 1] >= made.copies[:, 0]).all()
