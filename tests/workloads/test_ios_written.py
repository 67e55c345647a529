"""Files of IOS that are written: there and back, how blocks are cut, and what cannot be expressed."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ios_documents import documents, merged, outcome, spoiled, stages_of, write

import simsched as ss
from simsched.base.errors import FormatError, GraphError, ScheduleError
from workloads.formats.hios import read_hios, write_hios
from workloads.formats.ios import read_ios, read_ios_graph, write_ios
from workloads.models.inception_v3 import inception_v3
from workloads.models.network import Network

each_drawn = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
each_spoiled = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "net.json"


def test_a_file_that_is_read_and_written_is_the_same(file):
    """Down to the last field: names for people, kernels of merged convolutions, shapes and stages."""
    write_ios(read_ios(write(file, merged())), file)
    assert json.loads(file.read_text()) == merged()


@each_drawn
@given(document=documents())
def test_there_and_back(file, document):
    """What is read runs, and is read again from what is written."""
    first = read_ios(write(file, document)).check()
    given_stages = [stage for block in document["blocks"] for stage in block["stages"]]
    assert list(stages_of(first).values()) == given_stages
    write_ios(first, file)
    assert read_ios(file) == first
    write_ios(first.graph, file)
    assert read_ios_graph(file) == first.graph


def test_inception_there_and_back(file):
    """The very operators of the network, in its 13 blocks; only their labels are not kept."""
    network = inception_v3(batch=2)
    write_ios(network, file)
    found = read_ios_graph(file, batch=2)
    assert found.edges == network.edges
    assert [(op.name, op.kind, op.flops, op.kernels, dict(op.attributes)) for op in found.operators] == [
        (op.name, op.kind, op.flops, op.kernels, dict(op.attributes)) for op in network.operators
    ]
    assert [len(block) for block in found.blocks] == [len(block) for block in network.blocks]


def test_a_scheduler_there_and_back(file):
    network = inception_v3()
    plan = ss.schedule(network, ss.Cluster.preset("v100"), "greedy")
    write_ios(plan, file)
    found = read_ios(file).check()
    assert found.graph.edges == network.edges
    assert list(stages_of(found).values()) == list(stages_of(plan).values())


def test_blocks_that_more_than_the_exit_leaves_are_joined(file):
    """Of block "a" both operators are read in "b": one block. Of "b" only the exit is: "c" stands alone."""
    net = Network("joined")
    image = net.images(1, 3, 8, least=1)
    net.block = "a"
    first = net.conv("first", image, 4, 1)
    second = net.conv("second", first, 4, 1)
    net.block = "b"
    both = net.add("both", [first, second])
    net.block = "c"
    net.conv("last", both, 4, 1)
    write_ios(net.graph(), file)
    found = read_ios_graph(file)
    assert list(found.blocks) == [("first", "second", "both"), ("last",)]
    assert found.edges == net.graph().edges


def test_blocks_up_to_the_last_that_reads_the_image_are_joined(file):
    net = Network("late")
    image = net.images(1, 3, 8, least=1)
    x = None
    for block in ("a", "b", "c"):
        net.block = block
        x = net.conv(block, image if x is None or block == "b" else x, 4, 1)
    net.block = "d"
    net.concat("d", [x])
    write_ios(net.graph(), file)
    assert list(read_ios_graph(file).blocks) == [("a", "b"), ("c",), ("d",)]


def test_a_part_that_is_read_twice_is_a_node_of_its_own(file):
    """x = a + b, x * sigmoid(x), in one unit: the sum cannot be part of both that read it."""
    net = Network("swish")
    net.block = "block0"
    image = net.images(1, 3, 8, least=1)
    a, b = net.conv("a", image, 4, 1), net.conv("b", image, 4, 1)
    with net.unit("unit", "sequential"):
        x = net.add("x", [a, b])
        net.elementwise("product", "mul", [x, net.activation("gate", x, "sigmoid")])
    plan = ss.Schedule(net.graph(), [ss.Placement(name, stage=i) for i, name in enumerate("ab")] +
                       [ss.Placement("unit", "gpu1")], "stages")  # fmt: skip
    write_ios(plan.graph, file)
    types = [one["type"] for one in json.loads(file.read_text())["blocks"][0]["exit_node"]["nodes"]]
    assert types == ["identity", "activation", "element"]
    assert read_ios_graph(file) == plan.graph
    write_hios(plan, file)
    unit = json.loads(file.read_text())["blocks"][0]["exit_node"]
    assert [part["outputs"] for part in unit["nodes"]] == [[], [], []]  # nothing is sent within a unit
    assert read_hios(file).graph == plan.graph


def test_blocks_whose_stages_interleave_are_joined(file):
    first = read_ios(write(file, merged()))
    rows = [ss.Placement(p.op, stage=min(p.stage, 2)) for p in first.placements]  # "5" and "6" in one stage
    write_ios(ss.Schedule(first.graph, rows, "stages"), file)
    assert [len(block) for block in read_ios_graph(file).blocks] == [5]
    assert stages_of(read_ios(file)) == {("gpu0", 0): [["1"]], ("gpu0", 1): [["3", "4"]], ("gpu0", 2): [["5", "6"]]}


def net_of(build):
    net = Network("net", granularity="operator")
    build(net, net.images(1, 4, 8, least=1))
    return net.graph()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda net, x: net.batch_norm("norm", net.conv("c", x, 4, 1)), "operator 'norm' .* 'batch_norm' of 1 inputs"),
        (lambda net, x: net.view("flat", x, (1, 256)), r"operator 'flat' .* shape \(1, C, H, W\), not \(1, 256\)"),
        (lambda net, x: net.concat("tall", [x, x], axis=2), "operator 'tall' .* 'concat' of 2 inputs"),
        (lambda net, x: net.pool("up", x, "max", 3, stride=2, ceil_mode=True), "operator 'up' .* rounded up"),
        (lambda net, x: net.activation("soft", x, "gelu"), "operator 'soft' .* 'gelu' of 1 inputs"),
        (lambda net, x: net.add("sum", [x, net.conv("c", x, 4, 1)]), r"operator 'sum' .* 2 input shapes and 1 edges"),
        (
            lambda net, x: [net.conv("a", x, 4, 1), net.conv("b", net.images(1, 4, 9, least=1), 4, 1)],
            "which has one input of the network",
        ),
    ],
)
def test_graphs_that_cannot_be_written(file, build, message):
    with pytest.raises(GraphError, match=message):
        write_ios(net_of(build), file)
    assert not file.exists()


def op(**fields):
    shapes = {"input_shapes": ((1, 4, 8, 8),), "output_shape": (1, 4, 8, 8)}
    return ss.Operator("odd", **{"kind": "conv", **shapes, **fields})


CONV = {"kernel": [1, 1], "stride": [1, 1], "padding": [0, 0], "out_channels": 4}


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (op(kind="relu", input_shapes=()), "it has no input shapes"),
        (op(kind="relu", output_shape=None), "not None"),
        (op(attributes={}), "operator 'odd': field 'out_channels' is missing"),
        (op(attributes=CONV | {"activation": "gelu"}), "its activation is 'gelu'"),
        (op(attributes=CONV | {"kernel": 3}), "operator 'odd': field 'kernel' must be a list"),
        (op(attributes=CONV | {"kernel": [3, 3]}), "operator 'odd': field 'output_shape' is"),
        (op(kind="relu", attributes={"reads": 3}), "field 'reads' must be a list"),
        (op(kind="relu", attributes={"reads": [["in", 0, 3]]}), "it reads"),
        (op(kind="relu", attributes={"reads": [["in", 0]]}), "contradict its edges or input shapes"),
        (op(kind="relu", attributes={"parts": []}), r"attributes\['parts'\] are empty"),
        (op(kind="x", attributes={"parts": [{"kind": "relu", "inputs": [0], "output_shape": [1, 4, 8, 8]}]}), "part 0"),
        (op(kind="x", attributes={"parts": [{"kind": "relu", "inputs": [-1], "output_shape": [4]}]}), "part 0"),
        (op(kind="pool", attributes={"pool": "min"}), "its pool is 'min'"),
    ],
)
def test_operators_that_cannot_be_written(file, one, message):
    with pytest.raises((GraphError, FormatError), match=message):
        write_ios(ss.OpGraph([one]), file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "operator 'odd' .* it reads 2 channels of the 4 of 'a'; say which"),
        ({"reads": [["b", 0, 2]]}, r"operator 'odd' .* its attributes\['reads'\] contradict its edges"),
        ({"reads": [["a", 3, 5]]}, "operator 'odd' .* it reads"),
    ],
)
def test_slices_that_cannot_be_written(file, attributes, message):
    """Two channels of "a"; "b" is another operator, which has no edge to what reads them."""
    rows = [ss.Operator(name, "relu", input_shapes=[(1, 4, 8, 8)], output_shape=(1, 4, 8, 8)) for name in "ab"]
    rows.append(op(kind="relu", attributes=attributes, input_shapes=((1, 2, 8, 8),), output_shape=(1, 2, 8, 8)))
    with pytest.raises(GraphError, match=message):
        write_ios(ss.OpGraph(rows, [ss.Edge("a", "odd", 512.0)]), file)
    rows[2] = replace(rows[2], attributes={"reads": [["a", 1, 3]]})
    write_ios(ss.OpGraph(rows, [ss.Edge("a", "odd", 512.0)]), file)
    assert read_ios_graph(file)["odd"].attributes["reads"] == [["a", 1, 3]]


def test_schedules_that_cannot_be_written(file):
    found = read_ios(write(file, merged()))
    rows = list(found.placements)
    for execution, placements, message in (
        ("events", rows, "its execution is 'events'"),
        ("stages", [*rows[:4], ss.Placement("6", "gpu1")], "IOS has one device, not gpu0, gpu1; write_hios"),
        ("stages", [*rows[1:], rows[0]], "operator"),
    ):
        with pytest.raises(ScheduleError, match=message):
            write_ios(ss.Schedule(found.graph, placements, execution), file)


@each_spoiled
@given(data=st.data())
def test_spoiled_attributes(file, data):
    """Whatever an operator carries, either the graph is refused or what is written can be read."""
    found = read_ios_graph(write(file, data.draw(documents())))
    i = data.draw(st.integers(0, len(found) - 1))
    attributes = data.draw(spoiled(json.loads(json.dumps(dict(found.operator(i).attributes)))))
    assume(isinstance(attributes, dict))
    rows = [replace(one, attributes=attributes) if j == i else one for j, one in enumerate(found.operators)]
    file.unlink()
    error = outcome(lambda path: write_ios(ss.OpGraph(rows, found.edges), path), file)
    if error is None:
        assert read_ios_graph(file).names == found.names
    else:
        assert "\n" not in str(error)
        assert not file.exists()
