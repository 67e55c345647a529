"""Files of IOS and HIOS: schedules worked by hand (JSON), graphs with times (text), and files that are not right."""

import pytest
from ios_documents import change, conv, graph, merged, node, placeholder, pool, two_devices, value, write
from small import edges

from simsched.base.errors import FormatError, GraphError, ScheduleError
from workloads.formats.ios_hios.hios import read_hios
from workloads.formats.ios_hios.hios_graph import read_hios_graph
from workloads.formats.ios_hios.ios import read_ios, read_ios_graph


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.json"


@pytest.fixture
def read(file):
    """Read a document as a graph; or a document of one block, given as its nodes, that reads 4 channels."""

    def read(document):
        blocks = document if isinstance(document, dict) else graph(placeholder(4, 8), (document, None))
        return read_ios_graph(write(file, blocks))

    return read


def placed(schedule):
    return [(p.op, p.device, p.stage, p.group, p.stream) for p in schedule.placements]


def test_operators_and_edges(read):
    """Channels 0-4 of "1" are 4 * 64 * 4 B = 1,024 B, its channels 4-12 are 2,048 B, the 3 of the pool 768 B,
    all 15 of "5" 3,840 B. What is read from the input of the network is no edge.
    """
    found = read(merged())
    assert found.name == "net"
    rows = " ".join(f"{op.name}:{op.kind}:{op.block}" for op in found.operators)
    assert rows == "1:conv:block0 3:conv:block0 4:pool:block0 5:concat:block0 6:pool:block1"
    assert list(found.edges) == edges("13=1024 35=1024 15=2048 45=768 56=3840")


def test_a_merged_convolution_costs_what_it_is_merged_to(read):
    """3 -> 12 channels, 3x3, 8x8: 2 * 12 * 64 * 27 = 41,472 FLOP; (27 + 1) * 12 weights = 1,344 B; bytes
    4 * 3 * 64 + 1,344 + 4 * 12 * 64 = 5,184; 64 pixels by 12 channels, of 27 inputs each.
    """
    one = read(merged())["1"]
    assert (one.flops, one.weight_nbytes, one.nbytes) == (41_472, 1_344, 5_184)
    assert [(work.rows, work.columns, work.inner) for work in one.works] == [(64, 12, 27)]
    assert one.attributes["hint_name"] == "1 2"
    assert (one.input_shapes, one.output_shape) == (((1, 3, 8, 8),), (1, 12, 8, 8))


def test_stages_are_numbered_through_the_blocks(file):
    found = read_ios(write(file, merged()))
    assert placed(found) == [
        ("1", "gpu0", 0, 0, 0),
        ("3", "gpu0", 1, 0, 0),
        ("4", "gpu0", 1, 1, 1),
        ("5", "gpu0", 2, 0, 0),
        ("6", "gpu0", 3, 0, 0),
    ]
    assert (found.execution, found.scheduler, found.estimate) == ("stages", "ios", None)


def test_what_the_file_does_not_record(file):
    """Four images in fp16: activations twice the bytes of one in fp32, weights half; 4 * 64 pixels."""
    path = write(file, merged())
    once, four = read_ios_graph(path), read_ios_graph(path, batch=4, dtype="fp16")
    assert four.edge_nbytes.tolist() == [2 * nbytes for nbytes in once.edge_nbytes]
    assert (four["1"].flops, four["1"].weight_nbytes) == (4 * once["1"].flops, once["1"].weight_nbytes / 2)
    assert read_ios_graph(path, batch=4)["1"].works[0].rows == 256
    assert four["1"].dtype == "fp16"
    assert read_ios(path, on="gpu3").devices == ("gpu3",)


def test_sums_and_concatenation_in_front_of_an_operator(read):
    """[1 + 2, 1]: a sum of 2 * 64 elements, a copy of 4 * 64, the convolution of 4 channels: three works.
    FLOP 2 * 64 + 0 + 2 * 64 * 6 * 4 = 3,200; an edge for each of the three values, two of them parallel.
    """
    first, second = (conv(name, [[["0", 0, 4]]], [2, 8, 8]) for name in "12")
    found = read([first, second, conv("3", [[["1", 0, 2], ["2", 0, 2]], [["1", 0, 2]]], [6, 8, 8])])
    three = found["3"]
    assert [part["kind"] for part in three.attributes["parts"]] == ["add", "concat", "conv"]
    assert (three.kind, three.flops) == ("conv", 3_200)
    assert [(work.family, work.rule, work.rows) for work in three.works] == [
        ("elementwise", "map", 128),
        ("elementwise", "copy", 256),
        ("convolution", "plain", 64),
    ]
    assert list(found.edges) == edges("13 23 13", nbytes=512.0)


def sequential():
    """ReLU, depthwise 3x3 and pointwise convolution of 4 -> 8 channels."""
    parts = [
        node("relu", "1", [[["0", 0, 4]]], [4, 8, 8]),
        conv("2", [[["1", 0, 4]]], [4, 8, 8], 3, 1, groups=4, act="identity"),
        conv("3", [[["2", 0, 4]]], [8, 8, 8], act="identity"),
    ]
    return {"type": "sequential", "name": "4", "hint_name": "ReluSepConv", "nodes": parts, "output_shape": [8, 8, 8]}


def test_a_sequential_is_one_operator(read):
    """FLOP 256 + 2 * 256 * 9 + 2 * 512 * 4."""
    found = read([sequential()])["4"]
    assert (found.kind, found.flops, len(found.works)) == ("sequential", 256 + 4608 + 4096, 3)
    assert [part["kind"] for part in found.attributes["parts"]] == ["relu", "conv", "conv"]
    assert found.attributes["hint_name"] == "ReluSepConv"


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (node("identity", "1", [[["0", 0, 4]]], [4, 8, 8]), "identity"),
        (node("identity", "1", [[["0", 0, 4], ["0", 0, 4]]], [4, 8, 8]), "add"),
        (node("identity", "1", [[["0", 0, 4]], [["0", 0, 4]]], [8, 8, 8]), "concat"),
        (node("identity", "1", [[["0", 0, 4], ["0", 0, 4]], [["0", 1, 3]]], [6, 8, 8]), "identity"),
        (node("element", "1", [[["0", 0, 4], ["0", 0, 4]]], [4, 8, 8], op_type="add"), "add"),
        (node("element", "1", [[["0", 0, 4], ["0", 0, 4]]], [4, 8, 8], op_type="mul"), "mul"),
        (node("relu", "1", [[["0", 0, 4]]], [4, 8, 8]), "relu"),
        (node("activation", "1", [[["0", 0, 4]]], [4, 8, 8], act_type="tanh", inplace=False), "tanh"),
        (pool("1", [[["0", 0, 4]]], [4, 1, 1], "global_max", 8), "pool"),
        (pool("1", [[["0", 0, 4]]], [4, 3, 3], "avg", 3, 2, 0), "pool"),
        (conv("1", [[["0", 0, 4]]], [5, 8, 8], act="sigmoid"), "conv"),
        (node("relu", "1", [[["0", 0, 4]]], None), "relu"),
    ],
)
def test_kinds(read, one, kind):
    """Each kind of node is read as what it does."""
    assert read([one])["1"].kind == kind


@pytest.mark.parametrize(
    ("where", "fields", "message"),
    [
        ("", {"blocks": []}, "field 'blocks' is empty"),
        ("input", {"output_shape": [2**30] * 3}, "input: .* more than any device holds"),
        ("block 1", {"enter_name": "4"}, r"blocks\[1\]: field 'enter_name' is '4', .* ends in '5'"),
        ("3", {"name": "1"}, "operator 1: field 'name' is '1', which is taken"),
        ("3", {"type": "dense"}, "operator '3': field 'type' is 'dense', which is not known; known are"),
        ("3", {"type": "mpi_sr"}, "operator '3': field 'type' is 'mpi_sr', which is not known"),
        ("3", {"output_shape": [4, 8, 9]}, r"operator '3': .* \[4, 8, 9\], but .* make \[4, 8, 8\]"),
        ("1", {"kernel": [99, 99]}, "operator '1': conv: a window of 99 x 99 does not fit into 8 x 8"),
        ("1", {"act": "gelu"}, "operator '1': field 'act' must be one of relu, sigmoid"),
        ("3", {"inputs": [[["9", 0, 4]]]}, "operator '3': .* names '9', which is no operator before"),
        ("3", {"inputs": [[["1", 4, 13]]]}, "operator '3': .* channels 4 to 13 of '1', which has 12"),
        ("3", {"inputs": [[["1", 0, 4, 8, 8, 0, 1]]]}, "values of seven are HIOS's"),
        ("3", {"inputs": [[]]}, "operator '3': field 'inputs' must be a list of lists of values"),
        ("3", {"inputs": [[["1", 0, 4], ["0", 0, 3]]]}, r"'3': .* puts the input \(3 x 8 x 8\) together with '1' \("),
        ("block 0", {"stages": None}, "field 'stages' is missing; .* read_ios_graph"),
        ("block 0", {"stages": [[["1"], ["2"]]]}, "stages' names '2' and it is no operator of the"),
        ("block 0", {"stages": [[["1", "1"]]]}, "field 'stages' names '1' twice"),
        ("block 0", {"stages": [[["1"]], [["5"]]]}, "field 'stages' leaves out operator '3'"),
        ("block 0", {"stages": [[]]}, "a stage must be a list that is not empty"),
    ],
)
def test_files_of_ios_that_are_refused(file, where, fields, message):
    with pytest.raises((FormatError, GraphError), match=message):
        read_ios(write(file, change(merged(), where, fields)))


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        (0, {"type": "sequential"}, "cannot stand inside a 'sequential'"),
        (1, {"inputs": [[["0", 0, 4]]]}, "names '0', which is no earlier part of the operator"),
        (1, {"name": "1"}, "field 'name' is '1', which is taken"),
        (1, {"inputs": [[["1", 0, 2]]]}, "reads a slice of '1'; a part must be read whole"),
        (None, {"nodes": []}, "field 'nodes' is empty"),
    ],
)
def test_sequentials_that_are_refused(read, part, fields, message):
    unit = sequential()
    (unit if part is None else unit["nodes"][part]).update(fields)
    with pytest.raises(FormatError, match=message):
        read([unit])


# HIOS --------------------------------------------------------------------------------------------


def test_schedule_on_two_devices(file):
    """Exits run once, on device 0; the stage that held one on device 1 is gone. "1" to "2" is 2 * 64 * 4 = 512 B."""
    found = read_hios(write(file, two_devices())).check()
    assert placed(found) == [
        ("1", "gpu0", 0, 0, 0),
        ("2", "gpu1", 0, 0, 0),
        ("3", "gpu1", 0, 1, 1),
        ("4", "gpu0", 1, 0, 0),
        ("5", "gpu0", 2, 0, 0),
    ]
    assert list(found.graph.edges) == edges("12=512 14=512 24=512 34=1024 45=1536")
    assert (found.execution, found.scheduler) == ("stages", "hios")


def test_stages_in_another_order(file):
    """On device 1 the exit stands first; it runs on device 0, and what follows it is still stage 0.

    Device 0 would end with "1", after "4", which waits for it: that is read, and then refused.
    """
    document = two_devices()
    document["blocks"][0]["stages"][1]["stages"].reverse()
    assert {("2", "gpu1", 0, 0, 0), ("3", "gpu1", 0, 1, 1)} <= set(placed(read_hios(write(file, document))))
    document["blocks"][0]["stages"][0]["stages"].reverse()
    with pytest.raises(ScheduleError, match="operator '4': it is launched before '1', which it reads from"):
        read_hios(write(file, document)).check()


def test_names_of_devices(file):
    found = read_hios(write(file, two_devices()), on=["left", "right"])
    assert sorted(found.devices) == ["left", "right"]
    with pytest.raises(FormatError, match="rank 1; there are names for 1 devices"):
        read_hios(file, on=["left"])
    with pytest.raises(ScheduleError, match="device 'left' has two ranks"):
        read_hios(file, on=["left", "left"])


def test_names_may_be_numbers_and_messages_are_copies(file):
    """A graph with which one transfer is timed, as HIOS does it: a tensor of 4 * 64 * 4 = 1,024 B, sent on."""
    rows = [
        {
            "type": "mpi_sr",
            "com_type": 1 - i,
            "name": str(i + 1),
            "hint_name": str(i + 1),
            "rank": i,
            "inputs": [[value(str(i), 0, 4, 0, i)]],
            "outputs": [],
            "output_shape": [4, 8, 8],
        }
        for i in (0, 1)
    ]
    stages = [{"rank": 0, "stages": [[[1]]]}, {"rank": 1, "stages": [[[2]]]}]
    found = read_hios(write(file, graph(placeholder(4, 8), (rows, stages)))).check()
    assert [(p.op, p.device) for p in found.placements] == [("1", "gpu0"), ("2", "gpu1")]
    assert [op.kind for op in found.graph.operators] == ["mpi_sr", "mpi_sr"]
    assert list(found.graph.edges) == edges("12=1024")


def ranked(*stages):
    """Stages of each rank: those of the block, or others."""
    usual = ([["1"]], [["4"]]), ([["2"], ["3"]], [["4"]])
    return {"stages": [{"rank": rank, "stages": list(one or usual[rank])} for rank, one in enumerate(stages)]}


@pytest.mark.parametrize(
    ("where", "fields", "message"),
    [
        ("2", {"rank": 0}, "has operator '2' on rank 1; its own is 0"),
        ("4", {"rank": -4}, "operator '4': field 'rank' is -4; below 0 are -1, -2 and -3"),
        ("1", {"inputs": [[["0", 0, 4]]]}, r"must hold values \[name, begin, end, height, width, rank"),
        ("1", {"inputs": [[value("0", 0, 4, 0, 1, 9)]]}, r"gives '0' the size \[9, 9\]; it is \[8, 8\]"),
        ("block 0", {"stages": [[["1"]]]}, r"stages\[0\]: expected an object, not \["),
        ("block 0", {"stages": 2 * ranked(None)["stages"]}, r"\[1\]: field 'rank' is 0; it must be that of a device"),
        ("block 0", {"stages": None}, "field 'stages' is missing"),
        ("block 0", ranked(None), "field 'stages' leaves out operator '2'"),
        ("block 0", ranked(([["1"]], [["4"]], [["4"]]), None), "field 'stages' names '4' twice"),
        ("block 0", ranked(([["1"]], [["4"]], [["5"]]), None), "names '5' and it is no operator of the block"),
    ],
)
def test_files_of_hios_that_are_refused(file, where, fields, message):
    with pytest.raises(FormatError, match=message):
        read_hios(write(file, change(two_devices(), where, fields)))


TIMES = "3\n0 1.500000 0.750000\n2 0.200000 1.000000\n1 4.000000 0.600000\n2\n0 1 1.200000\n1 2 0.050000\n"


def test_graph_with_times(file):
    """1.5 ms are 1,500 us; operators stand in the order of the file, and go by their number; floors raise."""
    found = read_hios_graph(write(file, TIMES))
    assert found.name == "net"
    rows = [(op.name, op.time, op.utilization) for op in found.operators]
    assert rows == [("0", 1500, 0.75), ("2", 200, 1.0), ("1", 4000, 0.6)]
    assert list(found.edges) == edges("01:1200 12:50")
    assert read_hios_graph(file, floor=100.0).edge_transfer.tolist() == [1200, 100]
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
def test_graphs_of_hios_that_are_refused(file, old, new, message):
    assert old in TIMES
    with pytest.raises((FormatError, GraphError), match=message):
        read_hios_graph(write(file, TIMES.replace(old, new, 1)))
