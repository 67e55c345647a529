"""Programs of profiler traces: each line of the rules by a trace made by hand, times in us."""

import json
from pathlib import Path

import numpy as np
import pytest
from kineto_traces import A100, CPU, KinetoTrace

import simsched as ss
from simsched.base.errors import SimschedError, WhatIfError
from simsched.cli.run import run
from simsched.experiments.whatif import parse_change
from simsched.model.program import SYNC, WAIT
from workloads import read_kineto_program
from workloads.formats.kineto_program import read_kineto_graph
from workloads.formats.kineto_replay import known_change, replay_traced, traced

GRID = {"grid": (64, 1, 1), "block": (256, 1, 1), "registers": 32, "shared": 1024}


class Made(KinetoTrace):
    """A trace whose calls launch what is said beside them."""

    def __init__(self, devices=(A100,)):
        super().__init__(devices=devices)

    def launch(self, ts, dur, start, length, *, stream=7, tid=CPU, name="k", call="cudaLaunchKernel", cat="kernel"):
        correlation = self.call(call, ts, dur, tid=tid)
        if cat == "kernel":
            self.kernel(correlation, start, length, name, stream=stream, **GRID)
        else:
            self.copy(correlation, start, length, cat=cat, name=name, stream=stream)

    def step(self, number, ts, dur):
        self.mark(f"ProfilerStep#{number}", ts, dur)

    def save(self, folder):
        return str(self.write(Path(folder) / "made.json"))


def starts(program, cluster=None):
    """Simulated starts in the order of the measured ones; both engines agree."""
    cluster = cluster or program.cluster
    both = [ss.simulate(program, cluster, engine=engine) for engine in ("compiled", "reference")]
    found = [trace.start[np.argsort(np.where(trace.kind == 0, trace.item, 10**6), kind="stable")] for trace in both]
    n = len(program.graph)
    np.testing.assert_allclose(found[0][:n], found[1][:n])
    return found[0][:n].round(6).tolist()


def test_gaps_and_calls(tmp_path):
    made = Made()
    made.launch(100, 5, 107, 10)  # idle: starts 2 behind its call
    made.launch(130, 6, 138, 4)
    program = read_kineto_program(made.save(tmp_path))
    assert program.lead.tolist() == [0, 25]
    assert program.own.tolist() == [5, 6]
    assert program.step is None
    assert program.n_waits == 0
    assert program.graph.operators[0].kernels == (ss.Kernel(64, 256, 32, 1024),)
    assert program.times.tolist() == [[7, 17], [38, 42]]
    cheap = program.cluster.replace_devices(launch=5.5, launch_latency=7.5, gap=0.0)
    assert starts(program, cheap) == [7, 38]
    halved = replay_traced(program, [parse_change(known_change("launch*=0.5"))])
    assert halved.simulated.program.own.tolist() == [2.5, 3]
    assert halved.simulated.program.lead.tolist() == [0, 25]


def test_costs_of_the_device_are_measured(tmp_path):
    made = Made()
    for k in range(6):
        made.launch(100 * k, 5, 100 * k + 8, 10)
    for k in range(6):  # issued early, one behind the other
        made.launch(700 + k, 1, 760 + 11 * k, 10)
    device = read_kineto_program(made.save(tmp_path)).cluster.devices[0]
    assert (device.launch, device.launch_latency, device.gap) == (3, 6, 1)
    assert (device.model, device.sms, device.contention) == ("NVIDIA A100-SXM4-40GB", 108, False)


def blocked(tmp_path, name, call="cudaLaunchKernel", **more):
    """A kernel of 50 us, a call that returns 3 us after it ended, and a kernel behind that."""
    made = Made()
    made.launch(0, 5, 7, 50, call=call, **more)
    if name:
        made.call(name, 10, 50)
    made.launch(70, 5, 77, 10)
    return read_kineto_program(made.save(tmp_path))


@pytest.mark.parametrize(
    "name", ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize",
             "cuCtxSynchronize", "cudaFree", "hipFree"]
)  # fmt: skip
def test_blocking_calls_block(name, tmp_path):
    program = blocked(tmp_path, name)
    sync = int(np.flatnonzero(program.action == SYNC)[0])
    assert (program.lead[sync], program.own[sync]) == (5, 3)
    assert starts(program) == [7, 77]
    quick = replay_traced(program, [parse_change("operator.k#0.speed=5")])
    assert quick.simulated_us == pytest.approx(87 - 40)
    assert ("k#0", "k#1") in {(edge.src, edge.dst) for edge in program.graph.edges}


def test_other_calls_do_not_block(tmp_path):
    program = blocked(tmp_path, "cudaMallocHost")
    assert not (program.action == SYNC).any()
    assert replay_traced(program, [parse_change("operator.k#0.speed=5")]).simulated_us == pytest.approx(87)


@pytest.mark.parametrize(
    ("call", "name", "blocks"),
    [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
        ("cudaMemcpy", "Memcpy DtoH (Device -> Pinned)", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
    ],
)
def test_copies_block_their_thread(call, name, blocks, tmp_path):
    made = Made()
    made.launch(0, 5, 7, 50)
    made.launch(10, 52, 58, 2, call=call, name=name, cat="gpu_memcpy")  # held by the kernel before it
    made.launch(70, 5, 77, 10)
    program = read_kineto_program(made.save(tmp_path))
    assert (program.action == SYNC).any() == blocks
    assert program.graph.operators[1].kind == "memcpy"
    quick = replay_traced(program, [parse_change("operator.k#0.speed=5")]).simulated_us
    assert quick == pytest.approx(47 if blocks else 87, abs=1.5)  # a gap of the device comes between


def waiting(tmp_path, *, ids, prefix="cuda"):
    """Stream 20 waits for what ran on 7 or 8: both end before it starts, that on 7 later; 9 ends behind."""
    made = Made()
    made.launch(0, 5, 7, 50, call=f"{prefix}LaunchKernel")
    made.launch(10, 5, 17, 20, stream=8, call=f"{prefix}LaunchKernel")
    made.launch(20, 5, 27, 90, stream=9, call=f"{prefix}LaunchKernel")
    record, wait = made.call(f"{prefix}EventRecord", 28, 1), made.call(f"{prefix}StreamWaitEvent", 30, 1)
    if ids:
        args = {"stream": 20, "correlation": wait, "device": 0, "wait_on_stream": 8,
                "wait_on_cuda_event_record_corr_id": record}  # fmt: skip
        made.event("cuda_sync", "Stream Wait Event", 30, 1, 0, 20, args)
    made.launch(40, 5, 59, 10, stream=20, call=f"{prefix}LaunchKernel")
    return read_kineto_program(made.save(tmp_path))


@pytest.mark.parametrize("prefix", ["cuda", "hip"])
def test_waits_without_ids_are_for_what_ended_last(prefix, tmp_path):
    program = waiting(tmp_path, ids=False, prefix=prefix)
    assert (program.n_waits, program.guessed_waits) == (1, 1)
    edges = {(edge.src, edge.dst) for edge in program.graph.edges}
    assert edges == {("k#0", "k#3")}
    assert starts(program)[3] == pytest.approx(57, abs=2.1)  # and a hop
    assert int((program.action == WAIT).sum()) == 1


def test_waits_by_ids(tmp_path):
    program = waiting(tmp_path, ids=True)
    assert (program.n_waits, program.guessed_waits) == (1, 0)
    assert {(edge.src, edge.dst) for edge in program.graph.edges} == {("k#1", "k#3")}


def test_work_is_handed_to_another_thread(tmp_path):
    made = Made()
    made.launch(0, 5, 7, 10)
    for k in range(3):  # the backward pass, while the first thread is silent
        made.launch(600 + 10 * k, 5, 607 + 10 * k, 2, tid=2)
    made.launch(1300, 5, 1307, 10)
    program = read_kineto_program(made.save(tmp_path))
    assert len(program.thread_ptr) == 3
    assert starts(program) == [7, 607, 617, 627, 1307]
    halved = replay_traced(program, [parse_change("overhead.launch*=0")], streams="one")
    assert halved.simulated.start[halved.simulated.kind == 0].round(3).tolist() == [7, 602, 607, 612, 1287]


def test_steps(tmp_path):
    made = Made()
    for number in (3, 4):
        made.step(number, 1000 * number, 500)
        made.launch(1000 * number + 10, 5, 1000 * number + 17, 600)  # runs into the next
    path = made.save(tmp_path)
    assert read_kineto_program(path).step == 4
    assert read_kineto_program(path, step=3).times.tolist() == [[17, 617]]
    assert len(read_kineto_program(path, step="all").graph) == 2
    for step, said in ((5, "there is no step 5; there are: 3, 4"), ("x", "step must be a number or 'all'")):
        with pytest.raises(SimschedError, match=said):
            read_kineto_program(path, step=step)


def test_earlier_work_is_there_from_the_beginning(tmp_path):
    made = Made()
    made.launch(0, 5, 7, 1000)
    made.step(1, 100, 500)
    made.launch(110, 5, 1008, 10)
    program = read_kineto_program(made.save(tmp_path))
    assert program.graph.names == ("k#0", "earlier work on stream 7")
    assert starts(program)[0] == pytest.approx(907, abs=1)
    assert replay_traced(program).measured_us == 918


def test_calls_that_are_lost(tmp_path):
    made = Made()
    made.launch(0, 5, 7, 10)
    made.kernel(77, 50, 10)
    program = read_kineto_program(made.save(tmp_path))
    assert program.n_lost == 1
    assert starts(program) == [7, 50]


def test_nodes_of_a_captured_graph(tmp_path):
    made = Made()
    made.launch(0, 5, 7, 20)
    graph = made.call("cudaGraphLaunch", 10, 8)
    for node, (start, length, stream) in enumerate([(28, 10, 7), (28, 30, 8), (39, 5, 7), (60, 5, 7)]):
        made.kernel(graph, start, length, f"node{node}", stream=stream, **{"graph node id": node + 1})
    made.launch(30, 5, 67, 10, name="after")
    program = read_kineto_program(made.save(tmp_path))
    edges = {(edge.src, edge.dst) for edge in program.graph.edges}
    assert ("k#0", "node1#0") in edges  # forked
    assert ("node1#0", "node3#0") in edges  # it was free at 44 and started behind node 1
    assert ("node1#0", "node2#0") not in edges
    assert ("node1#0", "after#0") in edges  # joined
    assert program.guessed_waits == 1
    assert starts(program)[-1] == pytest.approx(66, abs=3)


def test_collectives_keep_their_blocks(tmp_path):
    made = Made()
    made.launch(0, 5, 7, 10, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", stream=40)
    op = read_kineto_program(made.save(tmp_path)).graph.operators[0]
    assert (op.kind, op.name, op.kernels[0].blocks) == ("collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL#0", 64)


@pytest.mark.parametrize(
    ("devices", "said", "model"),
    [([A100 | {"name": ""}], "device 0 has no name", "device 0"),
     ([A100 | {"id": 3}], "nothing is said of device 0", "h100"),
     ([A100 | {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4}], "", "AMD Instinct MI300X")],
)  # fmt: skip
def test_devices_that_say_little(devices, said, model, tmp_path, caplog):
    made = Made(devices)
    made.launch(0, 5, 7, 10)
    program = read_kineto_program(made.save(tmp_path))
    assert program.cluster.devices[0].model == model
    assert said in caplog.text


def two_streams(tmp_path):
    made = Made()
    for k in range(4):
        made.launch(10 * k, 5, 7 + 100 * (k // 2), 100, stream=7 + k % 2)
    return made.save(tmp_path)


def test_what_ifs(tmp_path):
    program = read_kineto_program(two_streams(tmp_path))
    assert replay_traced(program).simulated_us == pytest.approx(208, abs=12)
    assert replay_traced(program, streams="one").simulated_us == pytest.approx(410, abs=5)
    assert replay_traced(program, host="none").simulated_us == pytest.approx(203, abs=3)
    assert replay_traced(program, host="captured").simulated_us == pytest.approx(207, abs=3)
    full = [parse_change("contention=true"), parse_change("device.sms=8")]
    assert replay_traced(program, full).simulated_us > 350  # 64 blocks of 8 warps fill 8 SMs
    other = replay_traced(program, [parse_change("device=v100")])
    assert other.simulated_us < other.other_us
    assert other.other_us / 208 == pytest.approx(1555 / 900, rel=0.05)
    for change, said in (("gpus=2", "no preset|a replayed trace"), ("operators.conv.speed=2", "no such operator")):
        with pytest.raises(SimschedError, match=said):
            replay_traced(program, [parse_change(change)])
    with pytest.raises(WhatIfError, match="host must be one of"):
        replay_traced(program, host="slow")


def test_another_schedule(tmp_path):
    path = two_streams(tmp_path)
    kept, dropped = read_kineto_graph(path), read_kineto_graph(path, order="waits")
    assert (len(kept.edges), len(dropped.edges)) == (2, 0)
    plan = traced(kept, ss.Cluster.preset("a100"), None)
    assert [row.stream for row in plan.placements] == [7, 8, 7, 8]
    assert ss.schedule(dropped, ss.Cluster.preset("a100"), "lios").n_streams == 4
    with pytest.raises(SimschedError, match="is not from a trace"):
        traced(ss.OpGraph([ss.Operator("a", time=1.0)]), ss.Cluster.preset("a100"), None)


def test_command_line(tmp_path, capsys):
    path = two_streams(tmp_path)
    assert not run(["replay-trace", path, "--json", "--set", "launch*=0.5", "--perfetto", str(tmp_path / "both.json")])
    found = json.loads(capsys.readouterr().out)
    assert found["measured_us"] == 207
    assert found["guessed_waits"] == 0
    assert [row["operators"] for row in found["busy"]] == [2, 2]
    names = [event["args"]["name"] for event in json.loads((tmp_path / "both.json").read_text())["traceEvents"]
             if event["name"] == "process_name"]  # fmt: skip
    assert {"gpu0, measured", "gpu0, simulated"} <= set(names)
    assert not run(["replay-trace", path, "--gantt", str(tmp_path / "both.svg")])
    assert "simulated makespan" in capsys.readouterr().out
    assert not run(["compare", path, "--schedulers", "sequential"])
    assert "an upper bound on what is needed" in capsys.readouterr().out
    assert not run(["compare", path, "--schedulers", "sequential", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["trace"] == {"step": None, "waits": 0, "guessed_waits": 0}
    assert [row["scheduler"] for row in found["rows"]] == ["traced", "sequential"]
