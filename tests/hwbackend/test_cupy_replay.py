"""The cupy backend on a fake CUDA: whatever order streams run in, values are those of sequential execution."""

from dataclasses import replace
from functools import partial
from threading import Event
from time import sleep

import numpy as np
import pytest
from fake_cuda import FakeCuda, RuleBroken, synth
from hypothesis import given, settings
from hypothesis import strategies as st
from shortened import program_of, synths

import workloads
from hwbackend.cuda_launches import Parameter
from hwbackend.cupy_backend import CupyBackend
from hwbackend.cupy_clocks import clock_offsets
from hwbackend.cupy_hosts import Hosts, check_issue
from hwbackend.cupy_operators import Numbers
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model import LAUNCH, RECORD, WAIT, Edge, Kernel, Operator, OpGraph, Placement, Schedule

PLACES = {"one": (1, 1), "two": (2, 1), "virtual": (1, 2)}
each_place = pytest.mark.parametrize("place", PLACES)


ABC = synths("abc", [("a", "b"), ("b", "c")])


def on_fake(place, rng=0, seed=0, **options):
    """Return a fake CUDA and a backend on it."""
    gpus, virtual = PLACES[place]
    fake = FakeCuda(gpus, rng, **options)
    return fake, CupyBackend(api=fake, seed=seed, virtual_devices=virtual)


LOWERINGS = {
    "events": [{}, {"threads": "one"}, {"transfers": "blocking"}, {"events": "literal"}],
    "stages": [{}, {"threads": "one", "transfers": "blocking"}],
    "graph": [{}],
}


@each_place
@given(data=st.data(), seed=st.integers(0, 10_000), execution=st.sampled_from(list(LOWERINGS)))
@settings(max_examples=10)
def test_values_are_right_in_any_order(place, data, seed, execution):
    graph = workloads.random_layered(n_ops=12, n_layers=4, rng=seed)
    graph = OpGraph([replace(op, time=op.time / 20) for op in graph.operators], graph.edges)  # two kernels at most
    fake, backend = on_fake(place, seed)
    plan = random_schedule(backend.realise(graph), backend.cluster, rng=seed, execution=execution)
    program = plan.lower(backend.cluster, **data.draw(st.sampled_from(LOWERINGS[execution])))
    replay = backend.replay(program, repeats=2, warmup=0)
    assert replay.max_relative_error == 0.0
    assert not fake.live


def test_clocks_of_gpus_are_brought_to_one():
    """The clock of GPU 1 is 5 ms ahead, a copy takes 3 us: b begins within 100 us of the end of a, not 5 ms later."""
    for skew in ((0, 5_000_000), (5_000_000, 0)):
        _, backend = on_fake("two", skew=skew)
        graph = synths("ab", [("a", "b")])
        replay = backend.replay(Schedule(graph, [Placement("a", "gpu0"), Placement("b", "gpu1")]), repeats=3)
        a, b = (next(s for s in replay.trace.spans if s.op == op and s.kind == "kernel") for op in "ab")
        assert 0.0 <= a.start < a.end
        assert abs(b.start - a.end) < 100.0


def test_the_quickest_reading_of_a_clock_counts(monkeypatch):
    """Of the waits of the host two of three end 1 ms late: such a reading is off by half of it; the others by 5 us."""
    fake, usual = FakeCuda(2, skew=(0, 5_000_000)), FakeCuda.synchronize_stream

    def late(stream):
        usual(fake, stream)
        fake.now += 1_000_000 if fake.count["synchronize_stream"] % 3 else 0

    fake.synchronize_stream, functions = late, {}
    for gpu in range(2):
        fake.set_device(gpu)
        functions[gpu] = fake.compile("", ["stamp"], ())
    assert clock_offsets(fake, functions) == pytest.approx({0: 0, 1: 5_000_000}, abs=5_000)


def test_operators_of_several_kernels():
    """relu(x) + relu(x) of one unit in three launches, through two scratch buffers, then a batch norm.

    Scale and shift are drawn from the name and the seed, so another seed gives other values.
    """
    shape = (1, 4, 8, 8)
    parts = [
        {"name": "r", "kind": "relu", "inputs": [-1], "output_shape": shape},
        {"name": "s", "kind": "relu", "inputs": [-1], "output_shape": shape},
        {"name": "t", "kind": "add", "inputs": [0, 1], "output_shape": shape},
    ]
    unit = Operator("unit", "unit", attributes={"parts": parts}, input_shapes=[shape], output_shape=shape)
    norm = Operator("norm", "batch_norm", input_shapes=[shape], output_shape=shape)
    counted = [replace(op, kernels=(Kernel(1),)) for op in (unit, norm)]  # so that they do not become synthetic
    graph = OpGraph(counted, [Edge("unit", "norm", 1024.0)])
    outputs = []
    for seed in (0, 0, 1):
        fake, backend = on_fake("one", seed=seed)
        realised = backend.realise(graph)
        assert [len(op.kernels) for op in realised.operators] == [3, 1]
        assert realised.operators[1].kernels[0].registers == 40 + len("affine")  # as the fake compiles it
        assert backend.realise(realised) is realised
        replay = backend.replay(Schedule(realised, [Placement("unit"), Placement("norm", stream=1)]), repeats=1)
        assert replay.max_relative_error == 0.0
        outputs.append(backend._work.reference[1])
        assert not fake.live
    assert np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


def test_synthetic_kernels_are_as_compiled():
    """The fake compiles synth to 45 registers and 16 bytes of shared memory; what a launch asks for beyond stays."""
    kernels = (Kernel(4, shared_memory=0, share=0.5), Kernel(4, shared_memory=4096, share=0.5))
    _, backend = on_fake("one")
    graph = backend.realise(OpGraph([Operator("a", "synth", kernels=kernels, flops=1e6)]))
    assert [(k.registers, k.shared_memory) for k in graph.operators[0].kernels] == [(45, 16), (45, 4096)]
    assert backend.realise(graph) is graph


def test_numbers_are_drawn_as_described():
    """20,000 normal numbers of mean 3 and spread 0.5: their mean is within 5 * 0.5 / sqrt(20,000) = 0.018 of 3.

    Those without spread are the mean itself, and another name gives others.
    """
    graph = OpGraph([Operator("a", "synth"), Operator("b", "synth")])
    numbers = Numbers(graph, (), seed=1)
    wide, exact = Parameter("weight", (200, 100), 3.0, 0.5), Parameter("ticket", (3,), 2.0, 0.0)
    values = numbers.parameter(0, wide)
    assert abs(values.mean() - 3.0) < 0.018
    assert 0.48 < values.std() < 0.52
    assert numbers.parameter(0, exact).tolist() == [2.0] * 3
    assert not np.array_equal(values, numbers.parameter(1, wide))
    assert np.array_equal(values, Numbers(graph, (), seed=1).parameter(0, wide))


def test_part_of_a_tensor_is_read_where_it_lies():
    """relu reads channels 2 and 3 of 4, 64 numbers each: 128 numbers from the 128th on."""
    shape, part = (1, 4, 8, 8), (1, 2, 8, 8)
    norm = Operator("norm", "batch_norm", input_shapes=[shape], output_shape=shape, kernels=(Kernel(1),))
    cut = {"slices": {"0": [1, 2, 4]}}
    relu = Operator("relu", "relu", input_shapes=[part], output_shape=part, attributes=cut, kernels=(Kernel(1),))
    _, backend = on_fake("one")
    graph = OpGraph([norm, relu], [Edge("norm", "relu", 512.0)])
    backend.replay(Schedule(graph, [Placement("norm"), Placement("relu")]), repeats=1)
    whole, found = (backend._work.reference[i] for i in range(2))
    assert np.array_equal(found, np.maximum(whole[128:], 0))
    assert found.any()
    shown = backend.outputs(graph)
    assert [set(parameters) for _, parameters, _ in shown.values()] == [{(None, "scale"), (None, "shift")}, set()]
    (read,), _, wrote = shown["relu"]
    assert read.shape == part
    assert np.array_equal(read.ravel(), whole[128:])
    assert wrote is found


def test_a_wait_that_is_missing_shows():
    """Of eight orders, in a CUDA that lets streams run past the waits of a schedule, at least one runs d before c."""
    found = []
    for rng in range(8):
        fake, backend = on_fake("one", rng)
        usual, events = fake.wait, fake._events
        fake.wait = lambda stream, event: events[event].last.capture and usual(stream, event)  # noqa: B023
        try:
            backend.replay(Schedule(ABC, [Placement(name, stream=i % 2) for i, name in enumerate("abc")]), repeats=1)
        except BackendError as error:
            found.append(str(error))
        assert not fake.live
    assert found
    assert all("is not a number under the schedule" in text for text in found)


def test_a_host_thread_waits_until_a_record_is_issued():
    """The fake refuses a wait for an event that was not recorded. What comes from GPU 0 is issued late: GPU 1's thread
    comes to its wait long before GPU 0's to the record."""
    fake, backend = on_fake("two")
    usual = fake._launch
    fake._launch = lambda *arguments: (sleep(0.002 * (fake._device() == 0)), usual(*arguments))
    plan = Schedule(ABC, [Placement("a", "gpu0"), Placement("b", "gpu1"), Placement("c", "gpu0")])
    assert backend.replay(plan, repeats=2).max_relative_error == 0.0
    assert not fake.live


def test_the_fake_keeps_the_rules_of_cuda():
    fake = FakeCuda()
    fake.set_device(0)
    one, two, event, words = fake.stream(0), fake.stream(0), fake.event(False), np.zeros(2)
    functions, address = fake.compile("", ["stamp"], ()), fake.malloc(16)
    for values, stream, says in ((words, 0, "default stream"), (np.zeros(3), one, "beyond")):
        with pytest.raises(RuleBroken, match=says):
            fake.write(address, values, stream)
    with pytest.raises(RuleBroken, match="never recorded"):
        fake.wait(two, event)
    fake.begin_capture(one)
    fake.record(event, one)
    fake.wait(two, event)
    fake.launcher(functions["stamp"], (1, 1, 1), (1, 1, 1), 0, two, [np.uint64(address)])()
    with pytest.raises(RuleBroken, match="during a capture"):
        fake.malloc(8)
    with pytest.raises(RuntimeError, match="Unjoined"):
        fake.end_capture(one)
    fake.free(address)
    with pytest.raises(RuleBroken, match="not any more"):
        fake.write(address, words, one)


@pytest.mark.parametrize(
    ("spoils", "says"),
    [
        # the first in the order of the graph is b, not c that reads it
        (
            lambda run, y: y.fill(np.inf) if run == 2 else None,
            "output of 'b' is not finite even in sequential execution",
        ),
        (lambda run, y: np.add(y, run > 3, y), r"output of 'a' on gpu0 differs by .* from that of sequential"),
    ],
)
def test_wrong_values_are_named(spoils, says):
    """Of a, b and c in a row, which are run in sequence first; from the 4th run on one is added to every value."""
    count = [0]

    def kernel(memory, arguments, start, end):
        synth(memory, arguments, start, end)
        count[0] += 1
        spoils(count[0], memory.floats(arguments[3], arguments[4]))

    fake, backend = on_fake("one", kernels={"synth": kernel})
    with pytest.raises(BackendError, match=says):
        backend.replay(Schedule(ABC, [Placement(name) for name in "abc"]), repeats=1)
    assert not fake.live


def test_host_threads_that_wait_for_each_other_are_refused():
    """Thread 0 waits for event 1 before it records event 0, thread 1 the other way round."""
    graph = synths("ab", [])
    other = [(WAIT, 1, 0, 0), (LAUNCH, 1, 0, 1), (RECORD, 1, 0, 1)]
    stuck = program_of(graph, [(WAIT, 0, 0, 1), (LAUNCH, 0, 0, 0), (RECORD, 0, 0, 0)], other, events=2)
    fake, backend = on_fake("two")
    with pytest.raises(BackendError, match="host thread 0 waits for event 1, whose record is never issued"):
        backend.replay(stuck)
    assert not fake.live
    fine = program_of(graph, [(LAUNCH, 0, 0, 0), (RECORD, 0, 0, 0), (WAIT, 0, 0, 1)], other, events=2)
    check_issue(fine)
    assert backend.replay(fine, repeats=1).max_relative_error == 0.0


def test_a_thread_that_fails_does_not_leave_the_others_waiting():
    """Thread 1 fails while thread 0 waits at a gate that it would have opened."""
    gate, made = Event(), []
    first, then, again = (partial(made.append, text) for text in ("first", "then", "again"))
    with Hosts(2, [gate]) as hosts:
        with pytest.raises(TypeError, match="int"):
            hosts.run([first], [[gate.wait, then], [partial(int, None), gate.set]])
        hosts.run([], [[again], [gate.set]])
    assert made == ["first", "then", "again"]
