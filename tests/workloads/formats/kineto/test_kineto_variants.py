"""Traces as other releases and other GPUs' profilers write them: five kernels of 10 us, one every 20 us."""

import json

import pytest
from kineto_traces import A100

from simsched.base.errors import FormatError
from simsched.model.program import SYNC
from workloads import read_kineto_program
from workloads.formats.kineto.records import NO_LAUNCH, UNUSABLE
from workloads.formats.kineto.replay import replay_traced

EVENTS = []
for k in range(5):
    at = 1000 + 20 * k
    call = {"correlation": k + 1}
    shape = {"grid": [64, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
    for cat, name, ts, dur, pid, tid, args in (
        ("cuda_runtime", "cudaLaunchKernel", at, 5, 100, 100, call),
        ("kernel", "gemm", at + 7, 10, 0, 7, call | shape | {"device": 0, "stream": 7}),
    ):
        EVENTS.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args})


@pytest.fixture
def read(tmp_path):
    """Read the events after a function has changed each, and events that are added."""

    def program(change=lambda event: event, added=(), **options):
        path = tmp_path / "trace.json"
        events = [change(json.loads(json.dumps(event))) for event in EVENTS]
        path.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": [*events, *added]}), encoding="utf-8")
        return read_kineto_program(path, **options)

    return program


def is_right(program):
    assert (len(program.graph), program.n_lost, program.measured_makespan) == (5, 0, pytest.approx(97.0))
    assert replay_traced(program).error == pytest.approx(0.0, abs=0.01)
    return program


def called(cat, name):
    """Change the calls to another runtime's."""
    return lambda event: event | {"cat": cat, "name": name} if event["cat"] == "cuda_runtime" else event


@pytest.mark.parametrize(
    ("cat", "name"),
    [
        ("Runtime", "cudaLaunchKernel"),
        ("cuda_driver", "cuLaunchKernelEx"),
        ("cuda_runtime", "hipExtModuleLaunchKernel"),
        ("hip_runtime", "hipModuleLaunchKernel"),
        ("xpu_runtime", "urEnqueueKernelLaunch"),
        ("xpu_runtime", "zeCommandListAppendLaunchKernel"),
        ("musa_runtime", "musaLaunchKernel"),
        ("privateuse1_runtime", "aclrtLaunchKernel"),
        ("mtia_runtime", "runKernel"),
    ],
)
def test_calls_of_any_runtime(read, cat, name):
    """Where the name is none of a launch, its cost is unknown, but kernels are joined with their calls."""
    assert not is_right(read(called(cat, name))).of_trace.faults


@pytest.mark.parametrize(
    "wait",
    [
        "cudaStreamSynchronize",
        "hipEventSynchronize",
        "musaDeviceSynchronize",
        "urQueueFinish",
        "zeEventHostSynchronize",
    ],
)
def test_synchronisations_of_any_runtime(read, wait):
    """A call from 1086 to 1106 waits for the last kernel, which ends at 1097."""
    sync = EVENTS[0] | {"name": wait, "ts": 1086, "dur": 20, "args": {"correlation": 70}}
    program = read(added=[sync])
    assert (program.action == SYNC).sum() == 1


@pytest.mark.parametrize("field", ["ts", "dur", "correlation", "device", "stream"])
def test_numbers_may_be_texts(read, field):
    def change(event):
        place = event if field in event else event["args"]
        return event | {field: str(event[field])} if place is event else event | {"args": as_text(place)}

    def as_text(args):
        return args | ({field: str(args[field])} if field in args else {})

    assert not is_right(read(change)).of_trace.faults


@pytest.mark.parametrize("stream", ["0x7f12", "stream 7", 94_368_722_718_560, 7.0])
def test_streams_may_have_other_names(read, stream):
    program = is_right(read(lambda event: event | {"args": event["args"] | {"stream": stream}}))
    assert len({op.attributes["stream"] for op in program.graph.operators}) == 1


def test_large_numbers_of_streams_stay_apart(read):
    """Pointers get numbers that no other stream has."""
    streams = iter([2**40, 1, 2**40 + 8, 2**40, 0])

    def change(event):
        return event | {"args": event["args"] | {"stream": next(streams)}} if event["cat"] == "kernel" else event

    found = [op.attributes["stream"] for op in read(change).graph.operators]
    assert found == [2, 1, 3, 2, 0]


def test_device_and_stream_are_the_process_and_thread_of_a_kernel(read):
    """Old releases write no arguments for them."""

    def change(event):
        return event | {"args": {"correlation": event["args"]["correlation"]}, "tid": "stream 13"}

    program = is_right(read(change))
    assert {op.attributes["stream"] for op in program.graph.operators} == {13}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda event: {key: value for key, value in event.items() if key != "ts"}, UNUSABLE),
        (lambda event: event | {"ts": "soon"}, UNUSABLE),
        (lambda event: {key: value for key, value in event.items() if key != "name"}, UNUSABLE),
        (lambda event: event | {"args": event["args"] | {"stream": "none"}}, UNUSABLE),
        (lambda event: event | {"args": event["args"] | {"stream": -1}}, UNUSABLE),
        (lambda event: event | {"args": {"device": 0, "stream": 7}}, NO_LAUNCH),
        (lambda event: {key: value for key, value in event.items() if key != "args"}, NO_LAUNCH),
    ],
)
def test_a_bad_field_costs_its_event(read, spoil, fault):
    program = read(added=[spoil(EVENTS[-1] | {"ts": 1200.0})])
    assert program.of_trace.faults[fault] == 1
    assert len(program.graph.operators) == 5 + (fault == NO_LAUNCH)


def mark(number, start, length, cat="user_annotation"):
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "pid": 100, "tid": 100, "args": {}}


def test_the_last_step_with_work_is_read(read):
    """Of three steps the last launches nothing; marks of the device are none of the host."""
    marks = [mark(4, 990, 50), mark(5, 1040, 100), mark(6, 1150, 10), mark(5, 1047, 90, "gpu_user_annotation")]
    program = read(added=marks)
    assert (program.step, len(program.graph)) == (5, 3)
    assert read(added=marks, step=4).step == 4


def test_ranks_are_read_in_a_common_step(read, tmp_path):
    """The first rank has steps 4 and 5, the second 3 and 4."""
    paths = []
    for rank, first in enumerate((4, 3)):
        read(added=[mark(first, 990, 45), mark(first + 1, 1038, 100)])
        paths.append((tmp_path / "trace.json").rename(tmp_path / f"rank{rank}.json"))
    program = read_kineto_program(paths)
    assert (program.step, program.of_trace.ranks) == (4, 2)


def test_a_call_launches_a_kernel_on_each_device(read):
    """A cooperative launch on two devices has a kernel on each, of which none is written twice."""
    call = EVENTS[0] | {"name": "cudaLaunchCooperativeKernelMultiDevice", "ts": 1200, "args": {"correlation": 9}}
    kernels = [
        EVENTS[1] | {"ts": 1207, "pid": device, "args": EVENTS[1]["args"] | {"correlation": 9, "device": device}}
        for device in (0, 1)
    ]
    program = read(added=[call, *kernels])
    assert (len(program.graph), len(program.cluster)) == (7, 2)
    assert not program.of_trace.faults


def test_a_rank_is_given_once(read, tmp_path):
    read()
    path = tmp_path / "trace.json"
    copied = tmp_path / "copied.json"
    copied.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(
        FormatError, match=r"copied\.json: is the same trace as .*trace\.json; give the trace of another"
    ):
        read_kineto_program([path, copied])


def test_what_is_no_event_is_passed_over(read):
    """TensorFlow ends its list with an empty object."""
    is_right(read(added=[{}]))


def test_an_export_of_nsight_is_named(tmp_path):
    path = tmp_path / "nsight.json"
    path.write_text('{"data":["a"]}\n{"Type":79,"CudaEvent":{"startNs":"100","endNs":"200"}}\n', encoding="utf-8")
    with pytest.raises(FormatError, match=r"nsight\.json: is an export of Nsight Systems, which is not read; record"):
        read_kineto_program(path)
