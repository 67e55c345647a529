"""HIOS's files: schedules on several devices (JSON) and graphs with times (text)."""

import pytest
from ios_documents import all_nodes, stages_of, two_devices, value, write

from simsched.base.errors import FormatError, GraphError, ScheduleError
from workloads.formats.hios import read_hios
from workloads.formats.hios_graph import read_hios_graph


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.json"


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
        (lambda b, n: n["2"].update(rank=0), "has operator '2' on rank 1; its own is 0"),
        (lambda b, n: n["4"].update(rank=-4), "operator '4': field 'rank' is -4; below 0 are -1, -2 and -3"),
        (
            lambda b, n: n["1"].update(inputs=[[["0", 0, 4]]]),
            r"must hold values \[name, begin, end, height, width, rank",
        ),
        (
            lambda b, n: n["1"].update(inputs=[[value("0", 0, 4, 0, 1, 9)]]),
            r"gives '0' the size \[9, 9\]; it is \[8, 8\]",
        ),
        (lambda b, n: b.update(stages=[[["1"]]]), r"stages\[0\]: expected an object, not a list"),
        (lambda b, n: b["stages"][1].update(rank=0), r"stages\[1\]: field 'rank' is 0; it must be that of a device"),
        (lambda b, n: b.update(stages=None), "field 'stages' is missing"),
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
        ("3\n0", "4\n0", "line 5: it should hold \"id weight utilization\", not '2'"),
        ("1.500000", "nan", "line 2: 'nan' is not a finite number"),
        ("\n2 0.2", "\n0 0.2", "line 3: operator 0 stands twice"),
        ("1 2 0.05", "1 7 0.05", "line 7: there is no operator 7"),
        ("0.050000\n", "0.050000\n\nmore\n", "line 9: a line more than announced: 'more'"),
        ("0 1 1.2", "0 1 1 1.2", 'line 6: it should hold "producer consumer weight"'),
    ],
)
def test_graphs_that_are_refused(file, old, new, message):
    assert old in TIMES
    with pytest.raises((FormatError, GraphError), match=message):
        read_hios_graph(write(file, TIMES.replace(old, new, 1)))
