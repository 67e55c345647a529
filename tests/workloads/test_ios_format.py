"""IOS's JSON: a schedule worked by hand, drawn ones there and back, and files that are not right."""

import pytest
from ios_documents import all_nodes, conv, graph, merged, node, placeholder, pool, write

from simsched.base.errors import FormatError, GraphError
from workloads.formats.ios import read_ios, read_ios_graph


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.json"


def test_operators_and_edges(file):
    """Channels 0-4 of "1" are 4 * 64 * 4 B = 1,024 B, its channels 4-12 are 2,048 B, the 3 of the pool 768 B,
    all 15 of "5" 3,840 B. What is read from the input of the network is no edge.
    """
    found = read_ios_graph(write(file, merged()))
    assert found.name == "net"
    assert [(op.name, op.kind, op.block) for op in found.operators] == [
        ("1", "conv", "block0"), ("3", "conv", "block0"), ("4", "pool", "block0"), ("5", "concat", "block0"),
        ("6", "pool", "block1"),
    ]  # fmt: skip
    assert [(e.src, e.dst, e.nbytes) for e in found.edges] == [
        ("1", "3", 1024), ("3", "5", 1024), ("1", "5", 2048), ("4", "5", 768), ("5", "6", 3840),
    ]  # fmt: skip


def test_a_merged_convolution_costs_what_it_is_merged_to(file):
    """3 -> 12 channels, 3x3, 8x8: 2 * 12 * 64 * 27 = 41,472 FLOP; (27 + 1) * 12 weights = 1,344 B; bytes
    4 * 3 * 64 + 1,344 + 4 * 12 * 64 = 5,184; one tile of 64 pixels by 12 of 64 channels.
    """
    one = read_ios_graph(write(file, merged()))["1"]
    assert (one.flops, one.weight_nbytes, one.nbytes) == (41_472, 1_344, 5_184)
    assert [kernel.blocks for kernel in one.kernels] == [1]
    assert one.attributes["hint_name"] == "1 2"
    assert (one.input_shapes, one.output_shape) == (((1, 3, 8, 8),), (1, 12, 8, 8))


def test_stages_are_numbered_through_the_blocks(file):
    found = read_ios(write(file, merged()))
    assert [(p.op, p.device, p.stage, p.group, p.stream) for p in found.placements] == [
        ("1", "gpu0", 0, 0, 0), ("3", "gpu0", 1, 0, 0), ("4", "gpu0", 1, 1, 1), ("5", "gpu0", 2, 0, 0),
        ("6", "gpu0", 3, 0, 0),
    ]  # fmt: skip
    assert (found.execution, found.scheduler, found.estimate) == ("stages", "ios", None)


def test_what_the_file_does_not_record(file):
    """Four images in fp16: activations twice the bytes of one in fp32, weights half; 4 * 64 pixels make 4 tiles."""
    path = write(file, merged())
    once, four = read_ios_graph(path), read_ios_graph(path, batch=4, dtype="fp16", device="v100")
    assert four.edge_nbytes.tolist() == [2 * nbytes for nbytes in once.edge_nbytes]
    assert (four["1"].flops, four["1"].weight_nbytes) == (4 * once["1"].flops, once["1"].weight_nbytes / 2)
    assert read_ios_graph(path, batch=4)["1"].kernels[0].blocks == 4
    assert four["1"].dtype == "fp16"
    assert read_ios(path, on="gpu3").devices == ("gpu3",)


def test_sums_and_concatenation_in_front_of_an_operator(file):
    """[1 + 2, 1]: a sum of 2 * 64 elements, a copy of 4 * 64, the convolution of 4 channels: three kernels.
    FLOP 2 * 64 + 0 + 2 * 64 * 6 * 4 = 3,200; an edge for each of the three values, two of them parallel.
    """
    nodes = [
        conv("1", [[["0", 0, 3]]], [2, 8, 8]),
        conv("2", [[["0", 0, 3]]], [2, 8, 8]),
        conv("3", [[["1", 0, 2], ["2", 0, 2]], [["1", 0, 2]]], [6, 8, 8]),
    ]
    found = read_ios_graph(write(file, graph(placeholder(3, 8), (nodes, None))))
    three = found["3"]
    assert [part["kind"] for part in three.attributes["parts"]] == ["add", "concat", "conv"]
    assert (three.kind, three.flops, len(three.kernels)) == ("conv", 3_200, 3)
    assert sum(kernel.share for kernel in three.kernels) == pytest.approx(1)
    assert [(e.src, e.dst) for e in found.edges] == [("1", "3"), ("2", "3"), ("1", "3")]


def test_a_sequential_is_one_operator(file):
    """ReLU, depthwise 3x3 and pointwise convolution of 4 -> 8 channels: FLOP 256 + 2 * 256 * 9 + 2 * 512 * 4."""
    parts = [
        node("relu", "1", [[["0", 0, 4]]], [4, 8, 8]),
        conv("2", [[["1", 0, 4]]], [4, 8, 8], 3, 1, groups=4, act="identity"),
        conv("3", [[["2", 0, 4]]], [8, 8, 8], act="identity"),
    ]
    unit = {"type": "sequential", "name": "4", "hint_name": "ReluSepConv", "nodes": parts, "output_shape": [8, 8, 8]}
    found = read_ios_graph(write(file, graph(placeholder(4, 8), ([unit], None))))["4"]
    assert (found.kind, found.flops, len(found.kernels)) == ("sequential", 256 + 4608 + 4096, 3)
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
def test_kinds(file, one, kind):
    """Each kind of node is read as what it does."""
    assert read_ios_graph(write(file, graph(placeholder(4, 8), ([one], None))))["1"].kind == kind


def changed(change):
    document = merged()
    change(document, {one["name"]: one for one in all_nodes(document)})
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, n: d.update(blocks=[]), "field 'blocks' is empty"),
        (lambda d, n: d["input"].update(output_shape=[2**30] * 3), "input: .* more than any device holds"),
        (lambda d, n: d["blocks"][1].update(enter_name="4"), r"blocks\[1\]: field 'enter_name' is '4', .* ends in '5'"),
        (lambda d, n: n["3"].update(name="1"), r"operator 1: field 'name' is '1', which is taken"),
        (
            lambda d, n: n["3"].update(type="dense"),
            "operator '3': field 'type' is 'dense', which is not known; known are",
        ),
        (lambda d, n: n["3"].update(type="mpi_sr"), "operator '3': field 'type' is 'mpi_sr', which is not known"),
        (lambda d, n: n["3"].update(output_shape=[4, 8, 9]), r"operator '3': .* \[4, 8, 9\], but .* make \[4, 8, 8\]"),
        (
            lambda d, n: n["1"].update(kernel=[99, 99]),
            "operator '1': conv: a window of 99 x 99 does not fit into 8 x 8",
        ),
        (lambda d, n: n["1"].update(act="gelu"), "operator '1': field 'act' must be one of relu, sigmoid"),
        (lambda d, n: n["3"].update(inputs=[[["9", 0, 4]]]), "operator '3': .* names '9', which is no operator before"),
        (lambda d, n: n["3"].update(inputs=[[["1", 4, 13]]]), "operator '3': .* channels 4 to 13 of '1', which has 12"),
        (lambda d, n: n["3"].update(inputs=[[["1", 0, 4, 8, 8, 0, 1]]]), "values of seven are HIOS's"),
        (lambda d, n: n["3"].update(inputs=[[]]), "operator '3': field 'inputs' must be a list of lists of values"),
        (
            lambda d, n: n["3"].update(inputs=[[["1", 0, 4], ["0", 0, 3]]]),
            r"operator '3': .* puts the input \(3 x 8 x 8\) together with '1' \(4 x 8 x 8\)",
        ),
        (lambda d, n: d["blocks"][0].update(stages=None), "field 'stages' is missing; .* read_ios_graph"),
        (lambda d, n: d["blocks"][0].update(stages=[[["1"], ["2"]]]), "stages' names '2' and it is no operator of the"),
        (lambda d, n: d["blocks"][0].update(stages=[[["1", "1"]]]), "field 'stages' names '1' twice"),
        (lambda d, n: d["blocks"][0]["stages"].pop(1), "field 'stages' leaves out operator '3'"),
        (lambda d, n: d["blocks"][0].update(stages=[[]]), "a stage must be a list that is not empty"),
    ],
)
def test_files_that_are_refused(file, change, message):
    with pytest.raises((FormatError, GraphError), match=message):
        read_ios(write(file, changed(change)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts[0].update(type="sequential"), "cannot stand inside a 'sequential'"),
        (lambda parts: parts[1].update(inputs=[[["0", 0, 4]]]), "names '0', which is no earlier part of the operator"),
        (lambda parts: parts[1].update(name="1"), "field 'name' is '1', which is taken"),
        (lambda parts: parts.clear(), "field 'nodes' is empty"),
        (lambda parts: parts[1].update(inputs=[[["1", 0, 2]]]), "reads a slice of '1'; a part must be read whole"),
    ],
)
def test_sequentials_that_are_refused(file, change, message):
    parts = [node("relu", "1", [[["0", 0, 4]]], [4, 8, 8]), conv("2", [[["1", 0, 4]]], [4, 8, 8])]
    change(parts)
    unit = {"type": "sequential", "name": "4", "hint_name": "4", "nodes": parts, "output_shape": [4, 8, 8]}
    with pytest.raises(FormatError, match=message):
        read_ios_graph(write(file, graph(placeholder(4, 8), ([unit], None))))
