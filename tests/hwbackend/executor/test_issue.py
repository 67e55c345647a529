"""Drivers over a timed fake CUDA: for 500 random programs CuPy's and PyTorch's issue what the program says, in a legal
order.

The fake refuses illegal calls. It runs streams in any order that events allow, so that an operator that starts early
shows in the values (CuPy), or is refused (PyTorch).
"""

from functools import cache

import pytest
from fake_cuda import on_fake
from fake_torch_cuda import FakeTorchCuda
from shortened import synths

import workloads
from simsched.calibration.training import random_schedule
from simsched.model import COPY, LAUNCH, RECORD, WAIT, OpGraph

PROGRAMS, PROGRAMS_OF_A_GRAPH = 500, 25
EXECUTIONS = ("events", "graph", "stages")
OPTIONS = ({}, {"threads": "one"}, {"events": "literal"}, {"transfers": "blocking"})
DEVICES = 2


@cache
def graph_of(number):
    """A random DAG of 10 synthetic operators of one kernel each."""
    drawn = workloads.random_layered(n_ops=10, n_layers=4, rng=number)
    names = {name: f"op{i}" for i, name in enumerate(drawn.names)}
    return OpGraph(
        synths(names.values(), []).operators,
        synths(names.values(), [(names[e.src], names[e.dst]) for e in drawn.edges]).edges,
        f"dag {number}",
    )


def execution_of(number):
    return EXECUTIONS[number % 3]


def drawn_program(backend, number):
    """A random schedule of one of 20 graphs, lowered with random options."""
    execution = execution_of(number)
    graph = backend.realise(graph_of(number // PROGRAMS_OF_A_GRAPH))
    options = {} if execution == "graph" else OPTIONS[number // 3 % len(OPTIONS)]
    if execution == "stages":
        options = {key: value for key, value in options.items() if key != "events"}
    plan = random_schedule(graph, backend.cluster, rng=number, streams=1 + number % 5, execution=execution)
    return plan.lower(backend.cluster, **options)


def written(program):
    """For each stream what its instructions are to issue, in their order."""
    names = {LAUNCH: "launch", RECORD: "record", WAIT: "wait", COPY: "copy"}
    lanes = {}
    columns = (program.action, program.device, program.stream, program.argument)
    for action, device, stream, argument in zip(*(column.tolist() for column in columns), strict=True):
        if action in names:
            item = int(program.launches.op[argument]) if action == LAUNCH else argument
            lanes.setdefault((device, stream), []).append((names[action], item))
    return lanes


def by_lane(calls):
    lanes = {}
    for lane, action, item in calls:
        lanes.setdefault(lane, []).append((action, item))
    return lanes


def issued_by_cupy(fake, backend, program):
    """For each stream what was issued to it in one run, or in the capture."""
    work = backend._work_on(program.graph)
    before = len(fake.calls)
    with backend._run(program, work) as run:
        assert work.largest_error(run) == 0.0
        streams = run._streams
        lane_of = {handle: lane for lane, handle in streams.stream.items()}
        event_of = {handle: event for event, handle in streams.events.items()}
        if program.execution != "graph":
            before = len(fake.calls)
            run.once()
        made = fake.calls[before:]
    launches, copies = {}, {}
    for action, device, stream, argument in zip(
        *(c.tolist() for c in (program.action, program.device, program.stream, program.argument)), strict=True
    ):
        if action == LAUNCH:
            launches.setdefault((device, stream), []).append(int(program.launches.op[argument]))
        elif action == COPY:
            copies.setdefault((device, stream), []).append(argument)
    outputs = {
        (lane, int(run._buffers.devices[lane[0]].outputs[op])): op for lane, ops in launches.items() for op in ops
    }
    calls = []
    for name, *arguments in made:
        if name == "launch":
            lane = lane_of[arguments[3]]
            calls.append((lane, "launch", outputs[lane, int(arguments[4].args[-1][3])]))
        elif name == "record" and arguments[0] in event_of:
            calls.append((lane_of[arguments[1]], "record", event_of[arguments[0]]))
        elif name == "wait" and arguments[1] in event_of:
            calls.append((lane_of[arguments[0]], "wait", event_of[arguments[1]]))
        elif name in ("copy", "copy_peer"):
            lane = lane_of[arguments[-1]]
            calls.append((lane, "copy", copies[lane].pop(0)))
    return by_lane(calls)


def issued_by_torch(program, number):
    """For each stream what was issued to it in one run, or in the capture; operators refuse to run too early."""
    api, done, calls = FakeTorchCuda(DEVICES, number), set(), []
    graph, lane_of = program.graph, {}

    def compute(op):
        assert done.issuperset(graph.src[graph.dst == op].tolist()), f"{graph.names[op]} ran too early"
        done.add(op)

    def move(row):
        assert int(program.copies.op[row]) in done

    host = api.host(program, compute, move)
    lane_of.update({handle: lane for lane, handle in host._streams.items()})
    event_of = {id(event): i for i, event in enumerate(host._events)}
    record, wait, launch, copy = api.record, api.wait, host.launch, host.copy

    def recorded(event, stream):
        if id(event) in event_of:
            calls.append((lane_of[stream], "record", event_of[id(event)]))
        record(event, stream)

    def waited(stream, event):
        if id(event) in event_of:
            calls.append((lane_of[stream], "wait", event_of[id(event)]))
        wait(stream, event)

    def launched(row, device, stream):
        before = api.cuda.count["work"]
        launch(row, device, stream)
        assert api.cuda.count["work"] == before + 1
        calls.append(((device, stream), "launch", int(program.launches.op[row])))

    def copied(row, device, stream):
        copy(row, device, stream)
        calls.append(((device, stream), "copy", row))

    api.record, api.wait, host.launch, host.copy = recorded, waited, launched, copied
    host.run()
    assert done == set(range(len(graph)))
    if program.execution == "graph":
        calls.clear()
        host.capture()
        done.clear()
        host.run()
        assert done == set(range(len(graph)))
    return by_lane(calls)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("fifth", range(5))
def test_drivers_issue_what_a_program_says(fifth, execution):
    """A capture is of one GPU, the other programs are for two."""
    fake, backend = on_fake("one" if execution == "graph" else "two", fifth)
    for number in range(fifth * PROGRAMS // 5, (fifth + 1) * PROGRAMS // 5):
        if execution_of(number) == execution:
            program = drawn_program(backend, number)
            fake.calls.clear()
            expected = written(program)
            assert issued_by_cupy(fake, backend, program) == expected, number
            assert issued_by_torch(program, number) == expected, number
