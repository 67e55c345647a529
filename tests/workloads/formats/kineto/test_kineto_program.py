"""Programs of profiler traces: each line of the rules by a trace made by hand, times in us."""

import json

import numpy as np
import pytest
from kineto_traces import A100

import simsched as ss
from simsched.base.errors import SimschedError, WhatIfError
from simsched.cli.run import run
from simsched.experiments.whatif import parse_change
from simsched.model.program import SYNC, WAIT
from workloads.formats.kineto.program import read_kineto_graph
from workloads.formats.kineto.replay import replay_traced, traced

CLUSTER = ss.Cluster.preset("a100")


def starts(program, cluster=None):
    """Simulated starts in the order of the measured ones; both engines agree."""
    both = [ss.simulate(program, cluster or program.cluster, engine=engine) for engine in ("compiled", "reference")]
    found = [trace.start[np.argsort(np.where(trace.kind == 0, trace.item, 10**6), kind="stable")] for trace in both]
    n = len(program.graph)
    np.testing.assert_allclose(found[0][:n], found[1][:n])
    return found[0][:n].round(6).tolist()


def changed(program, *changes, **options):
    return replay_traced(program, [parse_change(change) for change in changes], **options)


def pairs(program):
    return {(edge.src, edge.dst) for edge in program.graph.edges}


def test_gaps_and_calls(made):
    made.launch(100, 5, 107, 10)  # idle: starts 2 behind its call
    made.launch(130, 6, 138, 4)
    program = made.program()
    assert (program.lead.tolist(), program.own.tolist()) == ([0, 25], [5, 6])
    assert (program.step, program.n_waits) == (None, 0)
    assert program.graph.operators[0].kernels == (ss.Kernel(64, 256, 32),)
    assert program.times.tolist() == [[7, 17], [38, 42]]
    cheap = program.cluster.replace_devices(launch=5.5, launch_latency=7.5, gap=0.0)
    assert starts(program, cheap) == [7, 38]
    halved = changed(program, "launch*=0.5").simulated.program
    assert (halved.own.tolist(), halved.lead.tolist()) == ([2.5, 3], [0, 25])


def test_costs_of_the_device_are_measured(made):
    for k in range(6):
        made.launch(100 * k, 5, 100 * k + 8, 10)
    for k in range(6):  # issued early, one behind the other
        made.launch(700 + k, 1, 760 + 11 * k, 10)
    device = made.program().cluster.devices[0]
    assert (device.launch, device.launch_latency, device.gap) == (3, 6, 1)
    assert (device.model, device.sms, device.contention) == ("NVIDIA A100-SXM4-40GB", 108, False)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        *((f"cuda{name}", True) for name in ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "Free")),
        *((name, True) for name in ("hipDeviceSynchronize", "cuCtxSynchronize", "hipFree")),
        ("cudaMallocHost", False),
    ],
)
def test_calls_that_block(name, blocks, made):
    """A kernel of 50 us, a call that returns 3 us after it ended, and a kernel behind that."""
    made.launch(0, 5, 7, 50)
    made.call(name, 10, 50)
    made.launch(70, 5, 77, 10)
    program = made.program()
    sync = np.flatnonzero(program.action == SYNC)
    assert [(program.lead[at], program.own[at]) for at in sync] == [(5, 3)] * blocks
    assert starts(program) == [7, 77]
    assert changed(program, "operator.k#0.speed=5").simulated_us == pytest.approx(47 if blocks else 87)
    assert (("k#0", "k#1") in pairs(program)) or not blocks


@pytest.mark.parametrize(
    ("call", "name", "blocks"),
    [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
        ("cudaMemcpy", "Memcpy DtoH (Device -> Pinned)", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
    ],
)
def test_copies_block_their_thread(call, name, blocks, made):
    made.launch(0, 5, 7, 50)
    made.copy(made.call(call, 10, 52), 58, 2, name=name)  # held by the kernel before it
    made.launch(70, 5, 77, 10)
    program = made.program()
    assert (program.action == SYNC).any() == blocks
    assert program.graph.operators[1].kind == "memcpy"
    quick = changed(program, "operator.k#0.speed=5").simulated_us
    assert quick == pytest.approx(47 if blocks else 87, abs=1.5)  # a gap of the device comes between


@pytest.mark.parametrize(("ids", "prefix", "source"), [(False, "cuda", 0), (False, "hip", 0), (True, "cuda", 1)])
def test_waits_are_for_what_is_named_else_for_what_ended_last(ids, prefix, source, made):
    """Stream 20 waits for what ran on 7 or 8: both end before it starts, that on 7 later; 9 ends behind."""
    for ts, start, length, stream in ((0, 7, 50, 7), (10, 17, 20, 8), (20, 27, 90, 9)):
        made.launch(ts, 5, start, length, stream=stream, call=f"{prefix}LaunchKernel")
    record, wait = made.call(f"{prefix}EventRecord", 28, 1), made.call(f"{prefix}StreamWaitEvent", 30, 1)
    if ids:
        args = {
            "stream": 20,
            "correlation": wait,
            "device": 0,
            "wait_on_stream": 8,
            "wait_on_cuda_event_record_corr_id": record,
        }
        made.event("cuda_sync", "Stream Wait Event", 30, 1, 0, 20, args)
    made.launch(40, 5, 59, 10, stream=20, call=f"{prefix}LaunchKernel")
    program = made.program()
    assert (program.n_waits, program.guessed_waits, (program.action == WAIT).sum()) == (1, not ids, 1)
    assert pairs(program) == {(f"k#{source}", "k#3")}
    assert ids or starts(program)[3] == pytest.approx(57, abs=2.1)  # and a hop


def test_work_is_handed_to_another_thread(made):
    made.launch(0, 5, 7, 10)
    for k in range(3):  # the backward pass, while the first thread is silent
        made.launch(600 + 10 * k, 5, 607 + 10 * k, 2, tid=2)
    made.launch(1300, 5, 1307, 10)
    program = made.program()
    assert (len(program.thread_ptr), starts(program)) == (3, [7, 607, 617, 627, 1307])
    halved = changed(program, "launch*=0", streams="one").simulated
    assert halved.start[halved.kind == 0].round(3).tolist() == [7, 602, 607, 612, 1287]


def test_steps(made):
    for number in (3, 4):
        made.mark(f"ProfilerStep#{number}", 1000 * number, 500)
        made.launch(1000 * number + 10, 5, 1000 * number + 17, 600)  # runs into the next
    assert made.program().step == 4
    assert made.program(step=3).times.tolist() == [[17, 617]]
    assert len(made.program(step="all").graph) == 2
    for step, said in ((5, "there is no step 5; there are: 3, 4"), ("x", "step must be a number or 'all'")):
        with pytest.raises(SimschedError, match=said):
            made.program(step=step)


def test_earlier_work_is_there_from_the_beginning(made):
    made.launch(0, 5, 7, 1000)
    made.mark("ProfilerStep#1", 100, 500)
    made.launch(110, 5, 1008, 10)
    program = made.program()
    assert program.graph.names == ("k#0", "earlier work on stream 7")
    assert starts(program)[0] == pytest.approx(907, abs=1)
    assert replay_traced(program).measured_us == 918


def test_calls_that_are_lost(made):
    made.launch(0, 5, 7, 10)
    made.kernel(77, 50, 10)
    program = made.program()
    assert (program.n_lost, starts(program)) == (1, [7, 50])


def test_nodes_of_a_captured_graph(made):
    made.launch(0, 5, 7, 20)
    graph = made.call("cudaGraphLaunch", 10, 8)
    for node, (start, length, stream) in enumerate([(28, 10, 7), (28, 30, 8), (39, 5, 7), (60, 5, 7)]):
        made.kernel(graph, start, length, f"node{node}", stream=stream, **{"graph node id": node + 1})
    made.launch(30, 5, 67, 10, name="after")
    program = made.program()
    # forked; free at 44, but started behind node 1; joined
    assert pairs(program) >= {("k#0", "node1#0"), ("node1#0", "node3#0"), ("node1#0", "after#0")}
    assert ("node1#0", "node2#0") not in pairs(program)
    assert program.guessed_waits == 1
    assert starts(program)[-1] == pytest.approx(66, abs=3)


def test_collectives_keep_their_blocks(made):
    made.launch(0, 5, 7, 10, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", stream=40)
    op = made.program().graph.operators[0]
    assert (op.kind, op.name, op.kernels[0].blocks) == ("collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL#0", 64)


def test_a_device_that_is_not_listed(made):
    """It is like the listed ones, if these are alike; else nothing is known of it."""
    made.launch(0, 5, 7, 10)
    for n, model in ((1, "NVIDIA A100-SXM4-40GB"), (2, "NVIDIA A100-SXM4-40GB"), (3, "h100")):
        made.header["deviceProperties"] = [
            A100 | {"id": 5 + k, "name": A100["name"] + "X" * (k == 2)} for k in range(n)
        ]
        program = made.program()
        assert program.cluster.devices[0].model == model
        assert program.of_trace.is_stated == (n < 3)


@pytest.mark.parametrize(
    ("device", "said", "model"),
    [
        ({"name": ""}, "device 0 has no name", "device 0"),
        ({"id": 3}, "nothing is said of device 0", A100["name"]),
        ({"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4}, "", "AMD Instinct MI300X"),
    ],
)
def test_devices_that_say_little(device, said, model, made, caplog):
    made.header["deviceProperties"] = [A100 | device]
    made.launch(0, 5, 7, 10)
    assert made.program().cluster.devices[0].model == model
    assert said in caplog.text


@pytest.fixture
def two_streams(made):
    for k in range(4):
        made.launch(10 * k, 5, 7 + 100 * (k // 2), 100, stream=7 + k % 2)
    return made


def test_what_ifs(two_streams):
    program = two_streams.program()
    for options, us, far in (
        ({}, 208, 12),
        ({"streams": "one"}, 410, 5),
        ({"host": "none"}, 203, 3),
        ({"host": "captured"}, 207, 3),
    ):
        assert changed(program, **options).simulated_us == pytest.approx(us, abs=far)
    assert changed(program, "contention=true", "device.sms=8").simulated_us > 350  # 64 blocks of 8 warps fill 8 SMs
    other = changed(program, "device=v100")
    assert other.simulated_us < other.other_us
    assert other.other_us / 208 == pytest.approx(1555 / 900, rel=0.05)
    for change, said in (("gpus=2", "no preset|a replayed trace"), ("operators.conv.speed=2", "unknown kind")):
        with pytest.raises(SimschedError, match=said):
            changed(program, change)
    with pytest.raises(WhatIfError, match="host must be one of"):
        changed(program, host="slow")


def test_another_schedule(two_streams):
    path = two_streams.write(two_streams.path)
    kept, dropped = read_kineto_graph(path), read_kineto_graph(path, order="waits")
    assert (len(kept.edges), len(dropped.edges)) == (2, 0)
    assert [row.stream for row in traced(kept, CLUSTER, None).placements] == [7, 8, 7, 8]
    assert ss.schedule(dropped, CLUSTER, "lios").n_streams == 4
    with pytest.raises(SimschedError, match="is not from a trace"):
        traced(ss.OpGraph([ss.Operator("a", time=1.0)]), CLUSTER, None)


def test_command_line(two_streams, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_streams.write(two_streams.path)

    def said(line):
        assert not run(line.split())
        return capsys.readouterr().out

    found = json.loads(said("replay-trace made.json --json --set launch*=0.5 --perfetto both.json"))
    assert (found["measured_us"], found["guessed_waits"]) == (207, 0)
    assert [row["operators"] for row in found["busy"]] == [2, 2]
    names = [
        event["args"]["name"]
        for event in json.loads((tmp_path / "both.json").read_text())["traceEvents"]
        if event["name"] == "process_name"
    ]
    assert {"gpu0, measured", "gpu0, simulated"} <= set(names)
    assert "simulated makespan" in said("replay-trace made.json --gantt both.svg")
    assert "an upper bound on what is needed" in said("compare made.json --schedulers sequential")
    found = json.loads(said("compare made.json --schedulers sequential --json"))
    assert found["trace"] == {"step": None, "waits": 0, "guessed_waits": 0}
    assert [row["scheduler"] for row in found["rows"]] == ["traced", "sequential"]


def test_a_copy_that_waits_for_its_stream_is_no_time_of_the_host(made):
    """A copy to pageable memory, called for at 20, begins 9 us after the kernel before it, within its call until 525.

    If the kernel takes 50 us instead of 500, the copy and the kernel called for 5 us after it are 450 us earlier.
    """
    made.launch(0, 5, 7, 500)
    copy = made.call("cudaMemcpyAsync", 20, 505)
    made.copy(copy, 516, 4, name="Memcpy DtoH (Device -> Pageable)")
    made.launch(530, 5, 537, 10)
    program = made.program()
    usual = replay_traced(program)
    fast = replay_traced(program, [parse_change("operator.k#0.speed=10")])
    assert usual.starts[2, 1] == pytest.approx(537, abs=2)
    assert usual.starts[2, 1] - fast.starts[2, 1] == pytest.approx(450)


def test_work_from_before_a_recording_waits_for_what_is_not_in_it(made):
    """A kernel without a call begins 31 us after the recording, on a device that looks idle: that time is kept."""
    made.call("cudaEventQuery", 0, 1)
    made.kernel(900, 31, 10)
    made.launch(5, 5, 43, 10)
    program = made.program()
    assert starts(program)[:2] == pytest.approx([31, 43], abs=2)
    assert program.of_trace.untraced_us > 20
