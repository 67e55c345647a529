"""HIOS's files: schedules on several devices (JSON) and graphs with times (text)."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ios_documents import all_nodes, documents, merged, of_one_line, outcome, spoiled, spoiled_bytes, stages_of, write

import simsched as ss
from simsched.base.errors import FileError, FormatError, GraphError, ScheduleError
from workloads.formats.hios import read_hios, write_hios
from workloads.formats.hios_graph import read_hios_graph, write_hios_graph
from workloads.formats.ios import read_ios
from workloads.random_dags import random_layered

each_drawn = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
each_spoiled = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.json"


def value(name, begin, end, rank, tag, size=8):
    return [name, begin, end, size, size, rank, tag]


def two_devices():
    """On device 0 the convolution "1" and what ends the blocks, on device 1 "2" and beside it "3"."""

    def node(kind, name, inputs, shape, rank, outputs, **fields):
        return {"type": kind, "name": name, "hint_name": name, "inputs": inputs, **fields, "output_shape": shape,
                "rank": rank, "outputs": outputs}  # fmt: skip

    window = {"kernel": [1, 1], "stride": [1, 1], "padding": [0, 0]}
    conv = {"out_channels": 2, **window, "groups": 1, "act": "relu"}
    enter = {"type": "placeholder", "name": "0", "hint_name": "0", "output_shape": [4, 8, 8], "rank": -1}
    leave = node("identity", "4", [[value("1", 0, 2, 0, 5), value("2", 0, 2, 1, 6)], [value("3", 0, 4, 1, 7)]],
                 [6, 8, 8], -1, [])  # fmt: skip
    last = node("pool", "5", [[value("4", 0, 6, -1, 8)]], [6, 1, 1], -3, [], pool_type="global_avg", kernel=[8, 8],
                stride=[1, 1], padding=[0, 0])  # fmt: skip
    return {
        "name": "two",
        "input": enter,
        "blocks": [
            {
                "enter_name": "0",
                "enter_node": enter,
                "inner_nodes": [
                    node("conv", "1", [[value("0", 0, 4, 0, 1)]], [2, 8, 8], 0, [[1, 3]], **conv),
                    node("conv", "2", [[value("1", 0, 2, 0, 3)]], [2, 8, 8], 1, [], **conv),
                    node("pool", "3", [[value("0", 0, 4, 0, 4)]], [4, 8, 8], 1, [], pool_type="max", **window),
                ],
                "exit_node": leave,
                "stages": [
                    {"rank": 0, "stages": [[["1"]], [["4"]]]},
                    {"rank": 1, "stages": [[["2"], ["3"]], [["4"]]]},
                ],
            },
            {
                "enter_name": "4",
                "enter_node": leave,
                "inner_nodes": [],
                "exit_node": last,
                "stages": [{"rank": 0, "stages": [[["5"]]]}, {"rank": 1, "stages": [[["5"]]]}],
            },
        ],
    }


def test_schedule_on_two_devices(file):
    """Exits run once, on device 0; the stage that held one on device 1 is gone. "1" to "2" is 2 * 64 * 4 = 512 B."""
    found = read_hios(write(file, two_devices())).check()
    assert stages_of(found) == {
        ("gpu0", 0): [["1"]], ("gpu1", 0): [["2"], ["3"]], ("gpu0", 1): [["4"]], ("gpu0", 2): [["5"]],
    }  # fmt: skip
    assert [(p.op, p.stream) for p in found.placements] == [("1", 0), ("2", 0), ("3", 1), ("4", 0), ("5", 0)]
    assert [(e.src, e.dst, e.nbytes, e.transfer) for e in found.graph.edges] == [
        ("1", "2", 512, None), ("1", "4", 512, None), ("2", "4", 512, None), ("3", "4", 1024, None),
        ("4", "5", 1536, None),
    ]  # fmt: skip
    assert (found.execution, found.scheduler) == ("stages", "hios")


def test_an_exit_listed_before_others_leaves_no_gap(file):
    """On device 1 the exit stands first; it runs on device 0, and what follows it is still stage 0."""
    document = two_devices()
    document["blocks"][0]["stages"][1]["stages"].reverse()
    assert stages_of(read_hios(write(file, document)))["gpu1", 0] == [["2"], ["3"]]


def test_what_is_read_runs(file):
    """Three tensors cross from one device to the other, and "4" adds before it concatenates."""
    trace = ss.simulate(read_hios(write(file, two_devices())), ss.Cluster.preset("v100", 2))
    assert [span.name for span in trace.spans if span.kind == "copy"] == ["1 -> gpu1", "2 -> gpu0", "3 -> gpu0"]
    assert [span.op for span in trace.spans if span.kind == "kernel"] == ["1", "2", "3", "4", "4", "5"]


def test_names_of_devices(file):
    found = read_hios(write(file, two_devices()), on=["left", "right"])
    assert sorted(found.devices) == ["left", "right"]
    with pytest.raises(FormatError, match="rank 1; there are names for 1 devices"):
        read_hios(file, on=["left"])
    with pytest.raises(ScheduleError, match="device 'left' has two ranks"):
        read_hios(file, on=["left", "left"])


def test_names_may_be_numbers_and_messages_are_copies(file):
    """A graph with which one transfer is timed, as HIOS does it: a tensor of 4 * 64 * 4 = 1,024 B, sent on."""
    document = two_devices()
    del document["blocks"][1]
    rows = [{"type": "mpi_sr", "com_type": 1 - i, "name": str(i + 1), "hint_name": str(i + 1), "rank": i,
             "inputs": [[value(str(i), 0, 4, 0, i)]], "outputs": [], "output_shape": [4, 8, 8]}
            for i in (0, 1)]  # fmt: skip
    document["blocks"][0].update(inner_nodes=rows[:1], exit_node=rows[1])
    document["blocks"][0]["stages"] = [{"rank": 0, "stages": [[[1]]]}, {"rank": 1, "stages": [[[2]]]}]
    found = read_hios(write(file, document)).check()
    assert [(p.op, p.device) for p in found.placements] == [("1", "gpu0"), ("2", "gpu1")]
    assert [op.kind for op in found.graph.operators] == ["mpi_sr", "mpi_sr"]
    assert found.graph.edge(0).nbytes == 1024


def test_stages_that_cannot_run_are_read_and_then_refused(file):
    """Device 0 would end with "1", after "4", which waits for it."""
    document = two_devices()
    document["blocks"][0]["stages"][0]["stages"].reverse()
    found = read_hios(write(file, document))
    with pytest.raises(ScheduleError, match="operator '4': it is launched before '1', which it reads from"):
        found.check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b, n: n["1"].pop("rank"), "operator '1': field 'rank' is missing"),
        (lambda b, n: n["2"].update(rank=0), "has operator '2' on rank 1; its own is 0"),
        (lambda b, n: n["2"].update(rank=-1), "has operator '2' on rank 1; its own is -1"),
        (lambda b, n: n["4"].update(rank=-4), "operator '4': field 'rank' is -4; below 0 are -1, -2 and -3"),
        (
            lambda b, n: n["1"].update(inputs=[[["0", 0, 4]]]),
            r"must hold values \[name, begin, end, height, width, rank",
        ),
        (
            lambda b, n: n["1"].update(inputs=[[value("0", 0, 4, 0, 1, 9)]]),
            r"gives '0' the size \[9, 9\]; it is \[8, 8\]",
        ),
        (lambda b, n: b.update(stages=None), "field 'stages' is missing"),
        (lambda b, n: b.update(stages=[[["1"]]]), r"stages\[0\]: expected an object, not a list"),
        (lambda b, n: b["stages"][1].update(rank=0), r"stages\[1\]: field 'rank' is 0; it must be that of a device"),
        (lambda b, n: b["stages"][1].update(rank=10**30), r"stages\[1\]: field 'rank' is 1000"),
        (lambda b, n: b["stages"].pop(), "field 'stages' leaves out operator '2'"),
        (lambda b, n: b["stages"][0]["stages"].append([["4"]]), "field 'stages' names '4' twice"),
        (lambda b, n: b["stages"][0]["stages"].append([["5"]]), "names '5', which is no operator of the block"),
    ],
)
def test_files_that_are_refused(file, change, message):
    document = two_devices()
    change(document["blocks"][0], {one["name"]: one for one in all_nodes(document)})
    with pytest.raises(FormatError, match=message):
        read_hios(write(file, document))
    assert of_one_line(outcome(read_hios, file), file)


def test_a_file_that_is_read_and_written_is_the_same(file):
    """Down to who sends what to whom; only tags are counted anew."""

    def without_tags(document):
        for block in document["blocks"]:
            assert block.pop("enter_node")["name"] == block["enter_name"]
        for one in all_nodes(document):
            one["outputs"] = [rank for rank, _ in one["outputs"]]
            for term in one["inputs"]:
                for read in term:
                    read[6] = 0
                    if read[0] == "0":
                        read[5] = 0
        return document

    write_hios(read_hios(write(file, two_devices())), file)
    assert without_tags(json.loads(file.read_text())) == without_tags(two_devices())


def test_messages_have_a_tag_each(file):
    write_hios(read_hios(write(file, two_devices())), file)
    document = json.loads(file.read_text())
    received = {tuple(read[5:]): one for one in all_nodes(document) for term in one["inputs"] for read in term}
    assert len(received) == 7  # as there are values
    one, two = all_nodes(document)[:2]
    assert one["outputs"] == [[1, two["inputs"][0][0][6]]]


def test_on_one_device_it_is_ios_with_ranks(file):
    plan = read_ios(write(file, merged()))
    write_hios(plan, file)
    found = read_hios(file).check()
    assert found.graph == plan.graph
    assert stages_of(found) == stages_of(plan)
    assert {one["rank"] for one in all_nodes(json.loads(file.read_text()))} == {0}


@st.composite
def spread(draw, plan):
    """A schedule whose operators are moved to three devices, in stages of one operator that can run."""
    devices = [draw(st.sampled_from(["gpu0", "gpu1", "gpu2"])) for _ in plan.placements]
    count = dict.fromkeys(devices, 0)
    rows = []
    for row, device in zip(plan.placements, devices, strict=True):
        rows.append(ss.Placement(row.op, device, stage=count[device]))
        count[device] += draw(st.integers(0, 1))
    return ss.Schedule(plan.graph, rows, "stages", scheduler="hios")


@each_drawn
@given(data=st.data())
def test_there_and_back(file, data):
    """A schedule on several devices, some of whose blocks end on another device than the first."""
    plan = data.draw(spread(read_ios(write(file, data.draw(documents()))))).check()
    write_hios(plan, file, on=["gpu0", "gpu1", "gpu2"])
    found = read_hios(file).check()
    assert (found.graph.names, found.graph.edges) == (plan.graph.names, plan.graph.edges)
    assert list(by_device(found).values()) == list(by_device(plan).values())


def by_device(plan):
    """The stages of each device, in order."""
    found = {}
    for (device, _), groups in sorted(stages_of(plan).items()):
        found.setdefault(device, []).append(groups)
    return found


def test_schedules_that_cannot_be_written(file):
    found = read_hios(write(file, two_devices()))
    rows = list(found.placements)
    with pytest.raises(ScheduleError, match="its execution is 'events'"):
        write_hios(ss.Schedule(found.graph, rows, "events"), file)
    with pytest.raises(ScheduleError, match="device 'gpu1' has no rank; name it in `on`"):
        write_hios(found, file, on=["gpu0"])
    with pytest.raises(ScheduleError, match="operator"):
        write_hios(ss.Schedule(found.graph, rows[::-1], "stages"), file)
    with pytest.raises(ScheduleError, match=r"holds a schedule, which OpGraph is not; schedule the graph first$"):
        write_hios(found.graph, file)


def test_devices_are_ranked_by_number(file):
    """gpu2 comes before gpu10."""
    found = read_hios(write(file, two_devices()), on=["gpu10", "gpu2"])
    write_hios(found, file)
    ranks = {one["name"]: one["rank"] for one in all_nodes(json.loads(file.read_text()))}
    assert (ranks["1"], ranks["2"]) == (1, 0)


@each_spoiled
@given(data=st.data())
def test_spoiled_documents(file, data):
    write(file, data.draw(spoiled(two_devices())))
    assert of_one_line(outcome(read_hios, file), file)


@each_spoiled
@given(data=st.data())
def test_spoiled_bytes(file, data):
    file.write_bytes(data.draw(spoiled_bytes(json.dumps(two_devices()))))
    assert of_one_line(outcome(read_hios, file), file)


TIMES = "3\n0 1.500000 0.750000\n2 0.200000 1.000000\n1 4.000000 0.600000\n2\n0 1 1.200000\n1 2 0.050000\n"


def test_graph_with_times(file):
    """1.5 ms are 1,500 us; operators stand in the order of the file, and go by their number."""
    found = read_hios_graph(write(file, TIMES))
    assert found.name == "net"
    assert [(op.name, op.time, op.utilization) for op in found.operators] == [
        ("0", 1500, 0.75), ("2", 200, 1.0), ("1", 4000, 0.6),
    ]  # fmt: skip
    assert [(e.src, e.dst, e.transfer, e.nbytes) for e in found.edges] == [("0", "1", 1200, 0), ("1", "2", 50, 0)]


def test_short_transfers_may_be_raised(file):
    found = read_hios_graph(write(file, TIMES), floor=100.0)
    assert found.edge_transfer.tolist() == [1200, 100]
    with pytest.raises(GraphError, match="floor must be a finite number"):
        read_hios_graph(file, floor=-1.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (TIMES, "", "line 1: it should hold the number of rows, not ''"),
        ("3\n", "1000000000000\n", 'line 5: it should hold "id weight utilization"'),
        ("3\n0", "4\n0", "line 5: it should hold \"id weight utilization\", not '2'"),
        ("3\n0", "2\n0", "line 4: it should hold the number of rows"),
        ("3\n0", "x\n0", "line 1: 'x' is not a whole number"),
        ("1.500000", "nan", "line 2: 'nan' is not a finite number"),
        ("1.500000", "1e999", "line 2: '1e999' is not a finite number"),
        ("1.500000", "-1", "line 2: '-1' is not a finite number of at least 0"),
        ("1.500000", "1e308", "operator '0': time must be finite"),
        ("0.750000", "1.1", r"operator '0': utilization must be in \(0, 1\]"),
        ("\n2 0.2", "\n0 0.2", "line 3: operator 0 stands twice"),
        ("1 2 0.05", "1 7 0.05", "line 7: there is no operator 7"),
        ("1 2 0.05", "1 0 0.05", "the edges form a cycle: 1 -> 0 -> 1"),
        ("\n1 2 0.050000", "", "it ends in line 7|line 7: it should hold"),
        ("0.050000\n", "0.050000\n\nmore\n", "line 9: there is more"),
        ("0 1 1.2", "0 1 1 1.2", 'line 6: it should hold "producer consumer weight"'),
        ("2\n0 1 1.200000\n1 2 0.050000\n", "9" * 5000, "line 5: '9999"),
    ],
)
def test_graphs_that_are_refused(file, old, new, message):
    assert old in TIMES
    with pytest.raises((FormatError, GraphError), match=message) as caught:
        read_hios_graph(write(file, TIMES.replace(old, new, 1)))
    assert of_one_line(caught.value, file)


def test_not_a_file(tmp_path):
    assert isinstance(outcome(read_hios, tmp_path), FileError)
    assert isinstance(outcome(read_hios_graph, tmp_path), FileError)
    assert isinstance(outcome(read_hios_graph, tmp_path / "none"), FileError)
    (tmp_path / "bytes").write_bytes(b"3\n\xff")
    assert isinstance(outcome(read_hios_graph, tmp_path / "bytes"), FormatError)


@each_drawn
@given(seed=st.integers(0, 2**32), n_ops=st.integers(20, 60))
def test_graph_there_and_back(file, seed, n_ops):
    """Times in ms and back in us are the same but for the last bits."""
    graph = random_layered(n_ops=n_ops, n_layers=5, rng=seed)
    write_hios_graph(graph, file)
    found = read_hios_graph(file)
    assert found.names == tuple(str(i) for i in range(n_ops))
    assert (found.src.tolist(), found.dst.tolist()) == (graph.src.tolist(), graph.dst.tolist())
    for column in ("time", "utilization", "edge_transfer"):
        np.testing.assert_allclose(getattr(found, column), getattr(graph, column), rtol=1e-15)


@pytest.mark.parametrize(
    ("operator", "edges", "message"),
    [
        ({"utilization": 1.0}, [], "operator 'a' cannot be written for HIOS: it has no time"),
        ({"time": 1.0}, [], "operator 'a' cannot be written for HIOS: it has no utilization"),
        ({"time": 1.0, "utilization": 1.0}, [ss.Edge("a", "b", 4.0)], "edge a -> b .* it has no transfer time"),
        ({"time": 1.0, "utilization": 1.0}, 2 * [ss.Edge("a", "b", transfer=1.0)], "edge a -> b .* it stands twice"),
    ],
)
def test_graphs_that_cannot_be_written(file, operator, edges, message):
    with pytest.raises(GraphError, match=message):
        write_hios_graph(ss.OpGraph([ss.Operator("a", **operator), ss.Operator("b", **operator)], edges), file)
    assert not file.exists()


@each_spoiled
@given(data=st.data())
def test_spoiled_text(file, data):
    file.write_bytes(data.draw(spoiled_bytes(TIMES)))
    assert of_one_line(outcome(read_hios_graph, file), file)
