"""The cpu backend as a whole: what it runs, checks and refuses. Times prove nothing here: this machine may be busy."""

import gc
import os
import threading

import numpy as np
import pytest
from shortened import without

import hwbackend
import simsched as ss
import workloads
from hwbackend import cpu_backend, cpu_threads
from hwbackend.cpu_backend import CpuBackend, availability
from hwbackend.cpu_noise import Probe
from hwbackend.cpu_values import OutputValues
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model.backend import Replay
from simsched.model.graph import Edge, Operator, OpGraph
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, WAIT
from simsched.model.schedule import Schedule

pytestmark = pytest.mark.skipif(not cpu_threads.SUPPORTED, reason="threads cannot be pinned to cores here")


@pytest.fixture(scope="module")
def backend():
    """Two workers, however many cores there are; nothing is rejected."""
    return CpuBackend(2, gate=False)


@pytest.fixture(scope="module")
def graph():
    return workloads.random_layered(n_ops=12, n_layers=4, n_edges=20, rng=3)


def overlap(replay):
    """Whether two kernels ran at one time."""
    rows = np.argsort(replay.trace.start)
    start, end = replay.trace.start[rows], replay.trace.end[rows]
    return bool((start[1:] < np.maximum.accumulate(end)[:-1]).any())


@pytest.mark.parametrize("execution", ["events", "stages", "graph"])
def test_all_kinds_of_execution(backend, graph, execution):
    """Outputs are those of sequential execution, every kernel has a span, and none starts before what it reads ends."""
    plan = random_schedule(graph, backend.cluster, rng=1, streams=3, execution=execution)
    replay = backend.replay(plan, repeats=3, warmup=1)
    assert replay.max_relative_error == 0.0
    assert (len(replay.latency), replay.name) == (3, "random")
    assert replay.program.execution == execution
    ends = {span.op: span.end for span in replay.trace.spans}
    starts = {span.op: span.start for span in replay.trace.spans}
    assert sorted(starts) == sorted(graph.names)
    assert all(ends[edge.src] <= starts[edge.dst] for edge in graph.edges)
    assert (replay.program.action == BARRIER).any() == (execution == "stages")
    assert max(ends.values()) <= max(replay.latency) * (1 + 1e-9)


def test_one_stream_runs_one_kernel_at_a_time(backend, graph):
    plan = random_schedule(graph, backend.cluster, rng=1, streams=1, execution="events")
    assert not overlap(backend.replay(plan, repeats=3, warmup=0))


def test_a_replay_survives_a_file(backend, graph, tmp_path):
    replay = backend.replay(random_schedule(graph, backend.cluster, rng=2), repeats=2, warmup=0)
    replay.save(tmp_path / "run.json")
    again = Replay.load(tmp_path / "run.json")
    assert again.latency == replay.latency
    assert again.environment == replay.environment
    assert {"backend", "device", "date", "gate", "blas", "scheduling", "clocks"} <= set(replay.environment)
    assert replay.environment["gate"].startswith("off, ")


def test_a_realised_graph_and_its_program_run_as_they_are(backend, graph):
    once = backend.realise(graph)
    assert backend.realise(once) is once
    program = random_schedule(once, backend.cluster, rng=4).lower(backend.cluster)
    replay = backend.replay(program, repeats=1, warmup=0)
    assert replay.program is program
    assert replay.name == "replay"


def test_the_simulator_takes_the_same_program(backend, graph):
    """What ran is simulated on the backend's own description of its devices, launch by launch."""
    replay = backend.replay(random_schedule(graph, backend.cluster, rng=4), repeats=1, warmup=0)
    predicted = ss.simulate(replay.program, replay.cluster)
    assert {s.op for s in predicted.spans if s.kind == "kernel"} == {s.op for s in replay.trace.spans}


def test_a_program_that_lacks_a_wait_is_found_out():
    """b reads a and has the higher priority: without its wait both are ready at once, and one worker takes b first."""
    backend = CpuBackend(1, gate=False)
    graph = OpGraph([Operator("a", time=200.0), Operator("b", time=200.0)], [Edge("a", "b", 8.0)], "pair")
    plan = Schedule.from_columns(graph, [0, 1], ("gpu0",), stream=[0, 1], priority=[0, -1], execution="graph")
    program = plan.lower(backend.cluster)
    assert backend.replay(program, repeats=1, warmup=0).max_relative_error == 0.0
    broken = without(program, program.action == WAIT)
    with pytest.raises(BackendError, match=r"the output of 'b' differs .* it read what had not been written yet"):
        backend.replay(broken, repeats=1, warmup=0)


def test_a_deadlock_is_found_and_named(backend):
    """The wait of b stays, the record behind a goes."""
    graph = OpGraph([Operator("a", time=200.0), Operator("b", time=200.0)], [Edge("a", "b", 8.0)], "pair")
    program = Schedule.from_columns(graph, [0, 1], ("gpu0",), stream=[0, 1]).lower(backend.cluster)
    stuck = without(program, program.action == RECORD)
    with pytest.raises(BackendError, match=r"deadlock in 'pair': waiting are 'b' on gpu0 for event 0, which nobody"):
        backend.replay(stuck, repeats=1, warmup=0)


def test_copies_between_logical_devices(graph):
    """Real copies, on streams of their own, from one device's outputs to the other's; priors have a link for them."""
    backend = CpuBackend(1, gate=False, virtual_devices=2)
    assert [device.name for device in backend.cluster.devices] == ["gpu0", "gpu1"]
    for execution in ("events", "graph"):
        plan = random_schedule(graph, backend.cluster, rng=0, streams=2, execution=execution)
        replay = backend.replay(plan, repeats=2, warmup=0)
        assert (replay.program.action == COPY).any()
        assert replay.max_relative_error == 0.0
        copies = [span for span in replay.trace.spans if span.kind == "copy"]
        assert len(copies) == len(replay.program.copies.op)
        assert all(span.end > span.start for span in copies)


def test_a_copy_that_is_missing_is_found_out():
    """b on gpu1 reads a, which gpu0 has written: without the copy it finds nothing."""
    backend = CpuBackend(1, gate=False, virtual_devices=2)
    graph = OpGraph([Operator("a", time=200.0), Operator("b", time=200.0)], [Edge("a", "b", 8.0)], "pair")
    program = Schedule.from_columns(graph, [0, 1], ("gpu0", "gpu1"), device=[0, 1]).lower(backend.cluster)
    values = OutputValues(program, rng=0)
    for copied in (True, False):
        values.poison()
        values.read(0, 0)
        values.write(0, 0)
        if copied:
            values.copied(0, 0)
        values.read(1, 1)
        values.write(1, 1)
        if copied:
            assert values.error() == 0.0
    with pytest.raises(BackendError, match=r"the output of 'b' differs .* \(relative error nan\)"):
        values.error()


def test_a_profile(backend):
    """Six runs of three operators, five of them sequential; operators alone are twelve in a row."""
    graph = OpGraph([Operator(n, time=200.0) for n in "abc"], [Edge("a", "b", 8.0), Edge("a", "c", 8.0)], "fork")
    profile = backend.profile(graph, in_situ=1, rng=0)
    assert [run.name for run in profile.runs] == [*(f"in-situ/sequential-{i}" for i in range(5)), "in-situ/streams-0"]
    assert [op.name for op in profile.operators] == ["a", "b", "c"]
    assert profile.cluster == backend.cluster
    assert profile.device.name == profile.runs[0].environment["device"]


def test_nothing_of_the_process_is_changed(graph):
    """Threads, pinning, priority, collection of garbage and threads of BLAS are as before."""

    def state():
        blas = [library.get() for library in cpu_threads.blas_libraries()]
        return os.sched_getaffinity(0), os.sched_getscheduler(0), gc.isenabled(), blas

    backend = CpuBackend(2, gate=False)
    before, threads = state(), set(threading.enumerate())
    backend.replay(random_schedule(graph, backend.cluster, rng=0), repeats=1, warmup=0)
    assert state() == before
    assert set(threading.enumerate()) <= threads


def test_products_stay_on_one_thread():
    """scipy brings an OpenBLAS besides that of numpy: whichever multiplies, it is limited."""
    import scipy.linalg.blas  # noqa: F401

    libraries = cpu_threads.blas_libraries()
    if not libraries:
        pytest.skip("neither numpy nor scipy was built with OpenBLAS")
    before = [library.get() for library in libraries]
    with cpu_threads.one_blas_thread() as found:
        assert [library.get() for library in libraries] == [1] * len(libraries)
        assert found.startswith(libraries[0].name)
        assert found.endswith(", 1 thread")
    assert [library.get() for library in libraries] == before


def test_a_blas_that_is_not_known(monkeypatch):
    monkeypatch.setattr(cpu_threads, "blas_libraries", list)
    with cpu_threads.one_blas_thread() as found:
        assert found == "unknown, its threads are not limited"


def test_a_busy_machine_is_refused(graph, monkeypatch):
    """Three probes are made before anything runs, and none for what is asked in the next half minute."""
    probes = []

    def probed(self):
        probes.append(Probe(0.31, 0.02, 7.2, 2))
        return probes[-1]

    monkeypatch.setattr(CpuBackend, "_probed", probed)
    monkeypatch.setattr(cpu_backend, "_MOMENT", 0.0)
    backend = CpuBackend(1)
    plan = random_schedule(graph, backend.cluster, rng=0)
    for _ in range(2):
        with pytest.raises(BackendError, match="the machine is busy: 31% of probe blocks were preempted"):
            backend.replay(plan, repeats=1)
    assert len(probes) == 3


def test_runs_with_preempted_blocks_are_told(graph, monkeypatch):
    """Behind an open gate runs are rejected by what their blocks saw; here all of them were preempted."""
    monkeypatch.setattr(CpuBackend, "_probed", lambda self: Probe(0.0, 0.01, 0.1, 2))
    monkeypatch.setattr("hwbackend.cpu_noise.was_preempted", lambda sample: True)
    backend = CpuBackend(1)
    with pytest.raises(BackendError, match="too busy: blocks were preempted in 100% of 4 runs"):
        backend.replay(random_schedule(graph, backend.cluster, rng=0), repeats=1, warmup=0)
    monkeypatch.setattr("hwbackend.cpu_noise.was_preempted", lambda sample: False)
    replay = backend.replay(random_schedule(graph, backend.cluster, rng=0), repeats=2, warmup=0)
    assert replay.environment["gate"] == "on, 0% of runs rejected"
    assert replay.environment["probe"].startswith("0% of probe blocks were preempted")


def test_a_probe_runs_on_all_workers():
    probe = CpuBackend(2, gate=False)._probed()
    assert 0.0 <= probe.rejected <= 1.0
    assert probe.cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sms": 0}, "sms must be a whole number of at least 1, not 0"),
        ({"sms": 1.5}, "sms must be a whole number"),
        ({"virtual_devices": "two"}, "virtual_devices must be a whole number of at least 1, not 'two'"),
        ({"gate": "no"}, "gate must be true or false, not 'no'"),
        ({"realtime": 1}, "realtime must be true or false, not 1"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"timeout": 0.0}, "timeout positive, not 0 and 0"),
        ({"sms": 4096}, r"4096 SMs are more than the \d+ cores .*gate=False"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(BackendError, match=message):
        CpuBackend(**options)


def test_real_time_priority_where_it_is_not_permitted(monkeypatch):
    monkeypatch.setattr(cpu_backend, "realtime_permitted", lambda: False)
    with pytest.raises(BackendError, match="real-time priority is not permitted here"):
        CpuBackend(1, realtime=True)
    backend = CpuBackend(1, gate=False)
    graph = OpGraph([Operator("a", time=200.0)], [], "one")
    replay = backend.replay(Schedule.from_columns(graph, [0], ("gpu0",)), repeats=1, warmup=0)
    assert replay.environment["scheduling"] == "normal"


def test_a_schedule_for_more_devices(backend, graph):
    plan = random_schedule(graph, ss.Cluster.preset("a100", n_gpus=2), rng=0)
    with pytest.raises(BackendError, match="the backend 'cpu' has 1 device: gpu0"):
        backend.replay(plan)


def test_workers_default_to_the_cores():
    backend = CpuBackend(gate=False)
    assert backend.cluster.devices[0].sms == min(8, len(os.sched_getaffinity(0)))
    assert CpuBackend(gate=False, virtual_devices=64).cluster.devices[0].sms == 1


def test_a_system_that_pins_no_threads(monkeypatch):
    monkeypatch.setattr(cpu_backend, "SUPPORTED", False)
    assert availability() == (False, "needs Linux, where threads can be pinned to cores")
    with pytest.raises(BackendError, match="only Linux"):
        CpuBackend()


def test_the_registry_knows_it():
    usable, reason = availability()
    assert usable
    assert f"{len(os.sched_getaffinity(0))} cores, real-time priority " in reason
    found = hwbackend.get("cpu", sms=1, gate=False)
    assert isinstance(found, CpuBackend)
    assert (found.name, found.cluster.devices[0].model) == ("cpu", "cpu")


def test_launches_have_spans_where_operators_have_several_kernels(backend):
    """Two kernels of one operator: the second reads nothing new, starts behind the first, and writes the output."""
    kernels = (ss.Kernel(2, share=0.5), ss.Kernel(4, share=0.5))
    graph = OpGraph(
        [Operator("a", "conv", flops=1e6, kernels=kernels), Operator("b", "relu", nbytes=1e4, kernels=(ss.Kernel(9),))],
        [Edge("a", "b", 8.0)],
        "net",
    )
    plan = Schedule.from_columns(graph, [0, 1], ("gpu0",), stream=[0, 1])
    replay = backend.replay(plan, repeats=2, warmup=0)
    assert int((replay.program.action == LAUNCH).sum()) == 3
    spans = sorted(replay.trace.spans, key=lambda span: span.start)
    assert [span.op for span in spans] == ["a", "a", "b"]
    assert replay.max_relative_error == 0.0
