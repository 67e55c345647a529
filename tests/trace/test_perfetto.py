"""Chrome JSON of traces, read by the rules of trace processors, and by a real one where there is one."""

import json
import os
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import small
from hand_spans import IDLE, dealt, kernel, made, simulated

from simsched.model import Cluster, Kernel, Operator, OpGraph
from simsched.model.trace.timeline import COPY, KERNEL, Load

REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    "C": {"name", "ts", "pid", "args"},
}


def by_phase(document):
    found = {phase: [] for phase in REQUIRED}
    for event in document["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def tracks(document):
    """Names of the tracks as (process, thread) by (pid, tid)."""
    events = by_phase(document)["M"]
    process = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = [event for event in events if event["name"] == "thread_name"]
    return {(e["pid"], e["tid"]): (process[e["pid"]], e["args"]["name"]) for e in threads}


def ns(us):
    return int(us * 1000)  # importers cut off what is below a nanosecond


def imported(document):
    """Slices and arrows as an importer finds them: by time, arrows bound to the slice that is open on their thread.

    Asserts what it would otherwise drop: slices that overlap, arrows outside of slices or back in time.
    """
    open_slice, slices, started, arrows = {}, [], {}, []
    for event in sorted((e for e in document["traceEvents"] if e["ph"] in "Xsf"), key=lambda e: ns(e["ts"])):
        track, ts = (event["pid"], event["tid"]), ns(event["ts"])
        if event["ph"] == "X":
            assert open_slice.get(track, (0, -1))[1] <= ts, f"{event['name']} overlaps the slice before it"
            open_slice[track] = (len(slices), ts + ns(event["dur"]))
            slices.append(event)
            continue
        number, end = open_slice[track]
        assert ts < end or slices[number]["dur"] == 0, f"arrow outside of {slices[number]['name']}"
        if event["ph"] == "s":
            assert event["id"] not in started
            started[event["id"]] = number
        else:
            arrows.append((slices[started[event["id"]]], slices[number]))
    assert len(arrows) == len(started)
    return slices, arrows


RUNS = {
    "one device": lambda: dealt(1),
    "two devices": lambda: dealt(2),
    "captured graph": lambda: dealt(2, "graph"),
    "blocking transfers": lambda: dealt(2, transfers="blocking"),
    "literal events": lambda: dealt(3, events="literal"),
    "one thread": lambda: dealt(2, threads="one"),
}


@pytest.fixture(scope="module", params=RUNS.values(), ids=RUNS)
def run(request):
    return request.param()


def test_every_event_has_what_it_needs(run):
    document = run.to_perfetto()
    assert set(document) == {"displayTimeUnit", "traceEvents", "otherData"}
    for event in document["traceEvents"]:
        assert set(event) >= REQUIRED[event["ph"]]
        assert event.get("args", True)  # no empty ones
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    named = tracks(document)
    assert {(e["pid"], e["tid"]) for e in by_phase(document)["X"]} == set(named)
    assert len({tid for _, tid in named}) == len(named)  # importers find a thread by its number alone
    assert not {tid for _, tid in named} & {pid for pid, _ in named}  # else it would be the main thread


def test_importer_sees_all_spans(run):
    """Every span arrives, to the nanosecond, none overlapping another on its thread."""
    slices, _ = imported(run.to_perfetto())
    mine = Counter((span.kind, span.name, round(span.start * 1e3), round(span.end * 1e3)) for span in run.spans)
    assert mine == Counter((s["cat"], s["name"], ns(s["ts"]), ns(s["ts"]) + ns(s["dur"])) for s in slices)


def test_arrows_follow_the_edges(run):
    """An arrow for each pair of operators on different threads, by way of a copy between devices."""
    graph = run.graph
    found = defaultdict(list)
    for source, target in imported(run.to_perfetto())[1]:
        assert ns(source["ts"]) + ns(source["dur"]) <= ns(target["ts"]) or source["dur"] == 0
        found[source["args"]["operator"], target["args"]["operator"]].append((source["cat"], target["cat"]))
    place = {span.op: (span.device, span.stream) for span in run.spans if span.kind == "kernel"}
    for u, v in {(graph.names[u], graph.names[v]) for u, v in zip(graph.src, graph.dst, strict=True)}:
        if place[u] == place[v]:
            assert (u, v) not in found
        else:
            same_device = place[u][0] == place[v][0]
            assert found.pop((u, v)) == [("kernel" if same_device else "copy", "kernel")]
    copies = Counter(graph.names[op] for op in run.op[run.kind == COPY])
    assert found == {(op, op): [("kernel", "copy")] * n for op, n in copies.items()}  # the rest leads into copies


def test_slice_says_what_ran():
    """b takes 6 us instead of the 4 us alone."""
    graph = OpGraph([Operator("b", "conv", time=4.0, flops=8.0, nbytes=9.0, block="stem")])
    (event,) = by_phase(made(graph, [(KERNEL, 0, 0, 0, 0, 1.0, 7.0, 0.5, 4.0, -1)]).to_perfetto())["X"]
    assert (event["name"], event["cat"], event["ts"], event["dur"]) == ("b", "kernel", 1.0, 6.0)
    assert event["args"] == {
        "operator": "b",
        "kernel": 0,
        "kind": "conv",
        "flops": 8.0,
        "nbytes": 9.0,
        "block": "stem",
        "start": 1.0,
        "duration": 6.0,
        "ready": 0.5,
        "solo": 4.0,
        "contention": 2.0,
    }


THREE = small.made("a=1 b=1 c=1")


def test_times_below_a_nanosecond_do_not_overlap():
    """[0, 1.0004] and [1.0004, 1.0008] us round to [0, 1000] and [1000, 1001] ns, and so does what follows."""
    rows = [kernel(0, 0.0, 1.0004), kernel(1, 1.0004, 1.0008), kernel(2, 1.0008, 1.0012)]
    slices, _ = imported(made(THREE, rows).to_perfetto())
    assert [(ns(s["ts"]), ns(s["dur"])) for s in slices] == [(0, 1000), (1000, 1), (1001, 0)]


def test_overlapping_kernels_get_lanes():
    """Measured: b runs from 2 to 4 on the stream on which a runs from 0 to 5; c follows a."""
    document = made(THREE, [kernel(0, 0, 5), kernel(1, 2, 4), kernel(2, 5, 6)]).to_perfetto()
    named = tracks(document)
    where = {s["name"]: named[s["pid"], s["tid"]] for s in imported(document)[0]}
    assert where == {"a": ("gpu0", "stream 0"), "b": ("gpu0", "stream 0 (2)"), "c": ("gpu0", "stream 0")}


@pytest.mark.parametrize(("a", "b", "arrows"), [((0, 5), (3, 6), [("a", "b")]), ((4, 5), (0, 3), [])])
def test_arrows_where_clocks_disagree(a, b, arrows):
    """b starts at 3 on another device although a, which it reads, ends at 5: the arrow starts at 3, within a.

    Where b has ended before a begins none can be drawn.
    """
    rows = [kernel(0, *a), kernel(1, *b, device=1)]
    document = made(small.made("a=5 b=3", "ab"), rows, "a b@1").to_perfetto()
    assert [(s["name"], t["name"]) for s, t in imported(document)[1]] == arrows


def test_names_of_tracks():
    """Two devices: a stream each, gpu0 one more for copies, and two issuing threads."""
    document = simulated(small.made("a=3 b=5", "ab=1e6"), "a b@1", Cluster.preset("a40", 2)).to_perfetto()
    assert list(tracks(document).values()) == [
        ("gpu0", "stream 0"),
        ("gpu0", "copy stream 1 -> gpu1"),
        ("gpu1", "stream 0"),
        ("host", "thread 0 -> gpu0"),
        ("host", "thread 1 -> gpu1"),
    ]
    indices = [e["args"]["sort_index"] for e in by_phase(document)["M"] if e["name"] == "process_sort_index"]
    assert indices == sorted(indices)


def test_counters():
    """SM at 0.5 from 1 to 4 and 0 later, at the makespan of 9 still; DRAM never loaded, gpu1 neither."""
    busy = Load(*np.array([[1, 0.5, 0, 0, 0], [2, 0.5, 0, 0, 0], [4, 0, 0, 0, 0]], float).T)
    document = made(small.made("a=9"), [kernel(0, 0, 9)], loads=[busy, IDLE]).to_perfetto()
    assert [(e["name"], e["pid"], e["ts"], e["args"]) for e in by_phase(document)["C"]] == [
        ("SM", 1, 1.0, {"load": 0.5}),
        ("SM", 1, 4.0, {"load": 0.0}),
    ]


def test_counters_close_at_the_makespan(run):
    last = {(e["pid"], e["name"]): e for e in by_phase(run.to_perfetto())["C"]}
    assert {name for _, name in last} == {"SM", "DRAM"}
    assert all(e["args"]["load"] == 0 and ns(e["ts"]) <= round(run.makespan * 1e3) for e in last.values())


def test_kernels_of_one_operator():
    """Two kernels of a on stream 0 and b behind them on stream 1: the arrow leaves the second kernel."""
    grid = tuple(Kernel(84, share=share) for share in (0.25, 0.75))
    graph = small.made([Operator("a", time=8.0, kernels=grid), Operator("b", time=1.0)], "ab")
    ((source, target),) = imported(simulated(graph, "a b/1", Cluster.preset("a40")).to_perfetto())[1]
    assert (source["args"]["kernel"], target["args"]["operator"]) == (1, "b")


def test_nothing_ran():
    assert made(THREE, []).to_perfetto()["traceEvents"] == []


def test_file_is_the_document(tmp_path):
    trace = dealt(2)
    document = trace.to_perfetto(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text()
    assert json.loads(text) == document
    assert text.count("\n") == 1
    info = document["otherData"]
    assert (info["graph"], info["cluster"], info["execution"]) == ("inception_v3", "2 x a40", "events")
    assert info["makespan_us"] == trace.makespan
    assert trace.to_perfetto() == document


def shell():
    """Path of a trace processor on this machine; the `perfetto` package would download one."""
    cached = sorted((Path.home() / ".local/share/perfetto/prebuilts").glob("trace_processor_shell-*"))
    candidates = [os.environ.get("TRACE_PROCESSOR_SHELL"), shutil.which("trace_processor_shell"), *map(str, cached)]
    return next((path for path in candidates if path and Path(path).is_file()), None)


@pytest.mark.skipif(
    shell() is None, reason="no trace_processor_shell in TRACE_PROCESSOR_SHELL, PATH or the perfetto package's cache"
)
@pytest.mark.filterwarnings("default")  # the package's own
def test_trace_processor_reads_it(run, tmp_path):
    """What Perfetto finds: every span with its length, the arrows, and no complaint of its importer."""
    api = pytest.importorskip("perfetto.trace_processor")
    document = run.to_perfetto(tmp_path / "trace.json")
    config = api.TraceProcessorConfig(bin_path=shell())
    with api.TraceProcessor(trace=str(tmp_path / "trace.json"), config=config) as processor:
        slices = Counter(
            (row.category, row.name, row.dur) for row in processor.query("select category, name, dur from slice")
        )
        (totals,) = processor.query(
            "select (select count(*) from flow) as arrows, (select max(depth) from slice) as deepest"
        )
        errors = list(processor.query("select name from stats where severity = 'error' and value > 0"))
    lengths = zip(run.spans, np.rint(run.end * 1e3) - np.rint(run.start * 1e3), strict=True)
    assert slices == Counter((span.kind, span.name, int(length)) for span, length in lengths)
    assert (totals.arrows, totals.deepest) == (len(imported(document)[1]), 0)
    assert [row.name for row in errors] == []
