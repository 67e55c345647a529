"""What a trace leaves out or has wrong is told: by hand, and by mutants of a trace of an H100; times in us.

``kineto_h100_streams.json.gz`` is a trace of ours of a mixture of experts (fp16, torch 2.11): a captured graph on eight
streams, launched twice, and the same work launched twice without it; only the events that a replay needs.
"""

import gzip
import json
import random
from pathlib import Path

import pytest
from kineto_traces import BASE, SECOND_0

import simsched as ss
from simsched.cli.run import run
from simsched.experiments.whatif import parse_change
from validation.realtraces_spoiled import MUTATIONS, is_silent, mutant
from workloads import read_kineto_program
from workloads.formats.kineto.facts import facts_of
from workloads.formats.kineto.pairs import read_all_pairs, write_pairs
from workloads.formats.kineto.records import (
    EARLY,
    FEWER_NODES,
    LONG,
    NO_COPY,
    NO_KERNEL,
    NO_LAUNCH,
    OVERLAPPING,
    TWICE,
    UNUSABLE,
    ZERO,
)
from workloads.formats.kineto.replay import replay_traced

STREAMS = Path(__file__).parent / "kineto_h100_streams.json.gz"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def starts(program):
    """Simulated starts in us, in the order of the graph."""
    return replay_traced(program).starts[:, 1].round(3).tolist()


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize(("intensity", "us"), [("link", 100.0), (None, 110.0)])
def test_a_collective_is_not_slowed_and_keeps_its_blocks(intensity, us, engine):
    """Beside a product that fills the issue slots a collective takes what it takes alone, as does the product.

    A kernel of the same shape that computes shares the slots: together they load them more than once.
    """
    shapes = ss.Kernel(108 * 2, 512), ss.Kernel(108, 640)
    graph = ss.OpGraph(
        [
            ss.Operator("product", time=100.0, kernels=shapes[:1], intensity="compute"),
            ss.Operator("other", time=100.0, kernels=shapes[1:], intensity=intensity),
        ],
        [],
    )
    plan = ss.Schedule(graph, [ss.Placement("product", stream=0), ss.Placement("other", stream=1)])
    cluster = ss.Cluster.preset("a100").replace_devices(launch=0.0, launch_latency=0.0, block_spread=0.0)
    trace = ss.simulate(plan, cluster, engine=engine)
    took = {span.op: span.end - span.start for span in trace.spans}
    if intensity == "link":
        assert took == pytest.approx({"product": us, "other": us}, abs=0.4)
    else:
        assert took["other"] > us
    full = ss.OpGraph(
        [
            ss.Operator("other", time=100.0, kernels=(ss.Kernel(108, 1024, 32, 160 * 1024),), intensity=intensity),
            ss.Operator("product", time=50.0, kernels=(ss.Kernel(108, 256, 32, 32 * 1024),)),
        ],
        [],
    )
    plan = ss.Schedule(full, [ss.Placement("other", stream=0), ss.Placement("product", stream=1)])
    spans = {span.op: span for span in ss.simulate(plan, cluster, engine=engine).spans}
    assert spans["product"].start >= spans["other"].end  # which has all the shared memory


def test_collectives_of_a_trace_move_with_their_kind(made):
    made.launch(0, 5, 7, 100, name=NCCL, stream=20)
    made.launch(6, 5, 13, 50)
    program = made.program()
    assert program.graph.operators[0].intensity == "link"
    assert replay_traced(program, [parse_change("operators.collective.speed=2")]).simulated_us == pytest.approx(63)
    assert facts_of(program).exposed_us == pytest.approx(50.0)


def test_work_from_before_the_recording_keeps_its_place(made):
    """Two kernels whose calls are not recorded run before one whose call is; it was called for long before they start.

    Another stream waits for the first of them, by event ids: it starts when that ends, not when the stream is free.
    """
    made.kernel(990, 7, 100)
    made.kernel(991, 108, 200)
    record, wait = made.call("cudaEventRecord", 0.5, 0.5), made.call("cudaStreamWaitEvent", 1, 1)
    made.launch(2, 1, 309, 50)
    args = {
        "stream": 20,
        "correlation": wait,
        "device": 0,
        "wait_on_stream": 7,
        "wait_on_cuda_event_record_corr_id": record,
    }
    made.event("cuda_sync", "Stream Wait Event", 1, 1, 0, 20, args)
    made.launch(4, 1, 310, 10, stream=20)
    program = made.program()
    assert program.n_lost == 2
    assert program.of_trace.faults == {NO_LAUNCH: 2}
    measured, simulated = replay_traced(program).starts.T
    assert simulated == pytest.approx(measured, abs=5)


def test_earlier_work_is_cut_where_it_is_waited_for(made):
    """Stream 20 waits for the first of two kernels from before the step, which ends at 400, not for the second."""
    made.launch(0, 1, 3, 397)
    record = made.call("cudaEventRecord", 2, 0.5)
    made.launch(4, 1, 401, 600)
    made.mark("ProfilerStep#1", 100, 2000)
    wait = made.call("cudaStreamWaitEvent", 110, 1)
    args = {
        "stream": 20,
        "correlation": wait,
        "device": 0,
        "wait_on_stream": 7,
        "wait_on_cuda_event_record_corr_id": record,
    }
    made.event("cuda_sync", "Stream Wait Event", 110, 1, 0, 20, args)
    made.launch(112, 1, 402, 50, stream=20)
    made.launch(114, 1, 1002, 50)
    program = made.program()
    assert program.graph.names[2:] == ("part 1 of earlier work on stream 7", "earlier work on stream 7")
    assert starts(program)[:2] == pytest.approx([302, 902], abs=3)


def test_idle_that_nothing_explains_is_held_and_told(made):
    """The second kernel starts 195 us after its call, on an idle device; the third 40 us late, which is too little."""
    for ts, start in ((0, 7), (20, 220), (300, 347)):
        made.launch(ts, 5, start, 10)
    program = made.program()
    assert program.graph.names[3] == "untraced#0"
    assert (program.of_trace.untraced_us, starts(program)[1]) == pytest.approx((193.0, 220.0), abs=0.1)
    assert "untraced: 54.1 % of the step" in program.lines()[0]
    assert replay_traced(program, host="none").starts[1, 1] > 193


def test_a_long_time_without_a_record_is_told(made):
    """Nothing is recorded from 17 us, when the first kernel ends, to 40 ms; an operator of the host explains it."""
    made.launch(0, 5, 7, 10)
    made.launch(40_000, 5, 40_007, 10)
    program = made.program()
    assert program.of_trace.silence == pytest.approx((17, 39_983))
    assert program.lines() == [
        "silence: 99.9 % of the step, from 17 us on, has no record of a host or a device; it counts as time of the host"
    ]
    made.op("aten::to", 20, 39_000)
    assert made.program().lines() == []


def test_early_starts_are_of_the_program(made):
    """A kernel of 20 us that starts 8 us before the one before it ends adds 12 us; 40 of such a chain do not add up."""
    start = 7.0
    for k in range(40):
        made.launch(2.0 * k, 1, start, 20, call="cudaLaunchKernelExC")
        start += 12
    program = made.program()
    assert program.of_trace.n_early == 39
    assert replay_traced(program).error == pytest.approx(0.0, abs=0.01)
    assert program.of_trace.faults == {}


def spoiled(trace):
    """A trace with one fault of each kind, or more."""
    trace.launch(0, 1, 3, 10)
    trace.events.append(trace.events[-2])  # the kernel again
    trace.call("cudaLaunchKernel", 20, 1)  # no kernel
    trace.call("cudaMemcpyAsync", 22, 1)  # no record
    trace.launch(40, 1, 30, 10)  # before its launch
    trace.launch(60, 1, 63, 0)  # no duration
    trace.launch(80, 1, 83, 90)  # beyond the next start
    trace.launch(84, 1, 100, 10)
    trace.launch(84.5, 3, 111, 5)
    trace.call("cudaEventQuery", 86, 5)  # overlaps
    trace.kernel(9999, 130, 10)  # no launch
    for k, n in enumerate((3, 2)):
        call = trace.call("cudaGraphLaunch", 150 + 50 * k, 5)
        for node in range(n):
            trace.kernel(call, 160 + 50 * k + 10 * node, 8, "n", **{"graph node id": (5 << 32) + node})
    trace.event("kernel", "k", -trace_zero(), 0, 0, 7, {"correlation": 5, "stream": 7, "device": 0})
    return trace


def trace_zero():
    """What `KinetoTrace` calls 0, so that its negative is a time of 0."""
    return (SECOND_0 * 1000 - BASE) / 1000


def test_faults_are_counted_and_told(made):
    program = spoiled(made).program()
    assert program.of_trace.faults == {
        UNUSABLE: 1,
        TWICE: 1,
        NO_KERNEL: 1,
        NO_COPY: 1,
        EARLY: 1,
        ZERO: 1,
        LONG: 1,
        OVERLAPPING: 1,
        NO_LAUNCH: 1,
        FEWER_NODES: 1,
    }
    assert program.lines()[0].startswith("records: 1 without a usable time or place, 1 written twice, ")


def test_a_field_that_is_not_needed_costs_its_event(made):
    made.launch(0, 1, 3, 10)
    made.op("aten::add", 0, -1)
    made.header["strange"] = float("nan")
    program = made.program()
    assert (len(program.graph), program.of_trace.faults) == (1, {UNUSABLE: 1})


def test_waits_follow_the_order_of_events():
    """No wait of the launched work is guessed, though the profiler names no record: those in captured graphs are."""
    program = read_kineto_program(STREAMS)
    assert program.guessed_waits < program.n_waits / 2
    assert abs(replay_traced(program).error) < 1e-4
    text = json.loads(gzip.decompress(STREAMS.read_bytes()))
    for event in text["traceEvents"]:
        event["args"].pop("wait_on_cuda_event_id", None)
    assert guessed_without_ids(text) > 2 * program.guessed_waits


def guessed_without_ids(document):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        path.write_text(json.dumps(document), encoding="utf-8")
        return read_kineto_program(path).guessed_waits


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_no_mutant_is_wrong_and_silent(mutate, tmp_path):
    """What is over 5 % off the unspoiled trace, in the replay or in what was measured, has a line that says why."""
    document = json.loads(gzip.decompress(STREAMS.read_bytes()))
    path = tmp_path / "mutant.json"
    truth = read_kineto_program(STREAMS).measured_makespan
    for seed in range(8):
        path.write_text(json.dumps(mutant(document, mutate, random.Random(seed))), encoding="utf-8")
        assert not is_silent(path, truth), seed


def test_contention_is_simulated_where_starts_fit_better(made):
    """A kernel that fills the device for 600 us keeps another one out, though nothing in the trace says why."""
    made.launch(0, 1, 3, 600, name="full", grid=108 * 8 * 6)
    made.launch(2, 1, 590, 20, stream=20)
    made.launch(4, 1, 611, 100, stream=20)
    program = made.program()
    off = replay_traced(program, [parse_change("contention=false")])
    assert off.start_error > 0.3
    assert replay_traced(program).start_error < off.start_error / 5


def test_commands_say_what_ran(made, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.launch(0, 5, 7, 300, name="full", grid=108 * 8 * 6)
    made.launch(6, 5, 290, 20, stream=20)
    made.call("cudaStreamSynchronize", 12, 300)
    made.launch(400, 5, 407, 10, name=NCCL)
    made.write(made.path)

    def said(line, status=0):
        assert run(line.split()) == status
        both = capsys.readouterr()
        return both.out + both.err

    assert "1 cudaStreamSynchronize" in said("replay-trace made.json --host captured")
    text = said("compare made.json --schedulers sequential")
    assert text.index("ran  ") < text.index("measured") < text.index("bound by") < text.index("sequential")
    assert "3 operators on 2 streams, 1 device (NVIDIA A100-SXM4-40GB)" in text
    ran = json.loads(said("compare made.json --schedulers sequential --json"))["ran"]
    assert (ran["measured_us"], ran["exposed_us"]) == pytest.approx((417, 10))
    text = said("advise made.json --schedulers sequential")
    assert "host bound" in text
    assert "times as fast as what ran" in text
    for line in ("explain", "throughput", "simulate", "show", "whatif", "sensitivity"):
        text = said(f"{line} made.json" + " --scheduler sequential" * (line != "show"))
        assert text.index("measured             417.0 us\nreplay") < text.index("A100-SXM4", 200)
    for line in ("robust made.json --schedulers sequential", "overlap made.json", "sweep made.json launch 0.5,2"):
        assert json.loads(said(f"{line} --json"))["ran"]["measured_us"] == pytest.approx(417), line
    found = json.loads(said("pairs . --json"))["traces"]
    assert [len(row["dispatch"]) for row in found] == [1]
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    assert "not valid JSON" in said("pairs . -o tables")
    made.header["deviceProperties"] = []
    made.launch(500, 5, 507, 10, name="volta_sgemm_128x64_nn")
    made.write(made.path)
    assert "give --gpu v100" in said("compare made.json --schedulers sequential", 2)
    assert "traced" in said("compare made.json --schedulers sequential --gpu v100")


def test_tables_of_pairs_are_read_again(made, tmp_path):
    """The second kernel is ready at 13 us and starts at 290; a collective runs beside the last of four of one shape."""
    from validation.realtraces_pairs import read_groups, read_pairs

    made.launch(0, 5, 7, 300, name="full", grid=108 * 8 * 6)
    made.launch(6, 5, 290, 20, stream=20, name="second")
    for start in (400, 500, 600):
        made.launch(start - 7, 5, start, 10, name="third")
    made.launch(690, 5, 697, 100, stream=20, name=NCCL)
    made.launch(703, 5, 710, 15, name="third")
    found = read_all_pairs([made.write(made.path)])
    dispatch, slowdowns = write_pairs(found, tmp_path / "tables")
    (pair,) = read_pairs(Path(dispatch).read_text(encoding="utf-8"), dispatch)
    assert (pair.durations, pair.ready, pair.start) == ((300.0, 20.0), 6.0, 283.0)
    (group,) = read_groups(Path(slowdowns).read_text(encoding="utf-8"), slowdowns)
    assert (group.other_kind, group.solo, group.beside, group.is_firm) == ("collectives", 10.0, 15.0, False)
