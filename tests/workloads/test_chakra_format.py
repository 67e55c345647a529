"""Chakra traces in JSON: as the tools of Chakra write them, round trips, and what is refused."""

import contextlib
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

from simsched.base.errors import FileError, FormatError, GraphError, SimschedError
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.formats.chakra import parse_chakra, read_chakra, to_chakra, write_chakra

JSONIZER = """{
  "version": "0.0.4"
}{
  "name": "load",
  "type": "MEM_LOAD_NODE",
  "attr": [
    {
      "name": "tensor_size",
      "uint64Val": "1024"
    }
  ]
}{
  "id": "1",
  "name": "aten::mm",
  "type": "COMP_NODE",
  "ctrlDeps": [
    "0"
  ],
  "startTimeMicros": "1700000000000000",
  "durationMicros": "12",
  "inputs": {
    "values": "[]"
  },
  "attr": [
    {
      "name": "is_cpu_op",
      "boolVal": false
    },
    {
      "name": "num_ops",
      "int64Val": "5000000000"
    }
  ]
}{
  "id": "7",
  "name": "a }{ brace",
  "type": "COMM_COLL_NODE",
  "ctrlDeps": [
    "1"
  ],
  "dataDeps": [
    "0",
    "1"
  ],
  "durationMicros": "30",
  "attr": [
    {
      "name": "comm_type",
      "int64Val": "0"
    },
    {
      "name": "comm_size",
      "uint64Val": "65536"
    },
    {
      "name": "involved_dim",
      "boolList": {
        "values": [
          true,
          false
        ]
      }
    }
  ]
}"""
"""What ``chakra_jsonizer`` writes: nothing between the objects, zeros left out, 64-bit numbers as texts."""

TRACE = OpGraph(
    [
        Operator("load", "mem_load", nbytes=1024.0),
        Operator("aten::mm", "comp", flops=5e9, time=12.0, attributes={"is_cpu_op": False}),
        Operator(
            "a }{ brace",
            "comm_coll",
            time=30.0,
            attributes={"comm_type": 0, "comm_size": 65536, "involved_dim": [True, False]},
        ),
    ],
    [Edge("load", "aten::mm"), Edge("load", "a }{ brace"), Edge("aten::mm", "a }{ brace")],
    "chakra",
)

SNAKE = [
    {"id": 0, "name": "load", "type": 2, "attr": [{"name": "tensor_size", "uint64_val": 1024}]},
    {
        "id": 1,
        "name": "aten::mm",
        "type": 4,
        "ctrl_deps": [0],
        "duration_micros": 12,
        "attr": [{"name": "is_cpu_op", "bool_val": False}, {"name": "num_ops", "int64_val": 5000000000}],
    },
    {
        "id": 7,
        "name": "a }{ brace",
        "type": 7,
        "data_deps": [0, 1],
        "ctrl_deps": [1],
        "duration_micros": 30,
        "attr": [
            {"name": "comm_type", "int64_val": 0},
            {"name": "comm_size", "uint64_val": 65536},
            {"name": "involved_dim", "bool_list": {"values": [True, False]}},
        ],
    },
]


def lines(nodes):
    return "\n".join(json.dumps(node) for node in nodes)


@pytest.mark.parametrize(
    "text",
    [
        JSONIZER,
        JSONIZER.replace("\n", "\r\n"),
        JSONIZER.partition("}")[2],  # without metadata
        JSONIZER.replace('"version": "0.0.4"', ""),
        lines(SNAKE),
        json.dumps(SNAKE),
        json.dumps([{"version": "0.0.4", "attr": []}, *SNAKE]),
        json.dumps({"metadata": {}, "nodes": SNAKE}),
    ],
)
def test_every_form_holds_the_same_graph(text):
    assert parse_chakra(text) == TRACE


def test_names_that_stand_twice_get_their_ids():
    graph = parse_chakra(
        lines([{"id": 3, "name": "mm"}, {"id": 5, "name": "mm"}, {"id": 4, "name": "add", "dataDeps": [5]}])
    )
    assert graph.names == ("mm#3", "mm#5", "add#4")
    assert graph.edges[0].src == "mm#5"


def test_nodes_without_a_name_are_called_by_their_ids():
    assert parse_chakra('{"id": 3}').names == ("#3",)


def test_every_type_is_a_kind():
    graph = parse_chakra(lines({"id": i, "name": f"n{i}", "type": i} for i in range(11)))
    assert [op.kind for op in graph.operators] == [
        "invalid", "metadata", "mem_load", "mem_store", "comp", "comm_send", "comm_recv", "comm_coll", "storage",
        "batch", "checkpoint",
    ]  # fmt: skip


def test_every_type_of_attribute():
    values = {
        "doubleVal": 1.5, "float_val": 2, "int32Val": -3, "uint64Val": "18446744073709551615", "sint64Val": "-4",
        "fixed64_val": "5", "stringVal": "12", "bytesVal": "MTI=", "double_list": {"values": [1.5, "NaN"]},
        "int64List": {"values": ["6", "-7"]}, "stringList": {}, "doc": 1,
    }  # fmt: skip
    node = {"name": "n", "attr": [{"name": key, key: value} for key, value in values.items()]}
    assert dict(parse_chakra(json.dumps(node))["n"].attributes) == {
        "doubleVal": 1.5, "float_val": 2.0, "int32Val": -3, "uint64Val": 2**64 - 1, "sint64Val": -4, "fixed64_val": 5,
        "stringVal": "12", "bytesVal": "MTI=", "double_list": [1.5, "NaN"], "int64List": [6, -7], "stringList": [],
        "doc": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no nodes"),
        ('{"version": "0.0.4"}', "no nodes"),
        ("[]", "no nodes"),
        ("{", "not valid JSON at line 1"),
        ('{"name": "a"}\n{"name": ', "not valid JSON at line 2"),
        ('{"name": "a"},{"name": "b"}', "not valid JSON"),
        ('{"name": "a", "name": "b"}', "field 'name' stands twice"),
        ('{"name": NaN}', "NaN is not a number"),
        ("9" * 5000, "t.json: "),
        ('{"name": "a"} 3', "nodes[1]: expected an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"nodes": 3}', "field 'nodes' must be a list"),
        ('{"name": 3}', "nodes[0]: field 'name' must be a text"),
        ('{"name": "a", "id": -1}', "nodes[0]: field 'id' must hold whole numbers"),
        ('{"name": "a", "id": "1e3"}', "nodes[0]: field 'id' must hold whole numbers"),
        ('{"name": "a", "id": "' + "9" * 5000 + '"}', "nodes[0]: field 'id' must hold whole numbers"),
        ('{"name": "a", "id": 1.5}', "field 'id' must be a whole number or a text"),
        ('{"name": "a"} {"name": "b", "id": "0"}', "nodes[1]: id 0 stands twice"),
        ('{"name": "a", "dataDeps": ["3"]}', "nodes[0]: 'a' depends on node 3, which is not in the trace"),
        ('{"name": "a", "dataDeps": [true]}', "field 'data_deps' must hold whole numbers"),
        ('{"name": "a", "ctrl_deps": 1}', "field 'ctrl_deps' must be a list"),
        ('{"name": "a", "type": "CONV"}', "field 'type' is 'CONV'; known are: INVALID_NODE"),
        ('{"name": "a", "type": 99}', "field 'type' is 99"),
        ('{"name": "a", "durationMicros": "18446744073709551616"}', "'duration_micros' must hold whole numbers"),
        ('{"name": "a", "attr": {}}', "field 'attr' must be a list"),
        ('{"name": "a", "attr": [3]}', "nodes[0], attribute: expected an object"),
        ('{"name": "a", "attr": [{"int64Val": 3}]}', "nodes[0], attribute: field 'name' is missing"),
        ('{"name": "a", "attr": [{"name": "x", "int64Val": "3.5"}]}', "attribute 'x': '3.5' is no int64 value"),
        ('{"name": "a", "attr": [{"name": "x", "int64Val": "--3"}]}', "attribute 'x': '--3' is no int64 value"),
        ('{"name": "a", "attr": [{"name": "x", "int64Val": 1' + "0" * 4000 + "}]}", "is no int64 value"),
        ('{"name": "a", "attr": [{"name": "x", "doubleVal": 1' + "0" * 4000 + "}]}", "is no double value"),
        ('{"name": "a", "attr": [{"name": "x", "boolVal": {}}]}', "{} is no bool value"),
        ('{"name": "a", "attr": [{"name": "x", "int32List": [1]}]}', "attribute 'x': expected an object"),
        ('{"name": "a", "attr": [{"name": "num_ops", "stringVal": "1"}]}', "attribute 'num_ops' must be a number"),
        ('{"name": "a", "attr": [{"name": "num_ops"}]}', "attribute 'num_ops' must be a number"),
        ('{"name": "a", "attr": [{"name": "kind", "int64Val": "1"}]}', "attribute 'kind' must be a text"),
    ],
)
def test_what_is_no_trace_is_refused(text, message):
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        parse_chakra(text, "t.json")
    assert str(caught.value).startswith("t.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "a", "dataDeps": ["0"]}', "cycle"),
        ('{"name": "a", "dataDeps": ["1"]} {"name": "b", "id": "1", "ctrlDeps": ["0"]}', "cycle"),
        ('{"name": "a", "attr": [{"name": "num_ops", "int64Val": "-1"}]}', "operator 'a': flops"),
        ('{"name": "a", "attr": [{"name": "kind", "stringVal": ""}]}', "operator 'a': kind"),
    ],
)
def test_what_no_graph_can_be_is_refused(text, message):
    with pytest.raises(GraphError, match=message) as caught:
        parse_chakra(text, "t.json")
    assert str(caught.value).startswith("t.json: ")


def test_written_trace():
    """12.4 us are 12 whole microseconds and themselves; the kind is one that Chakra has not; 0.5 is no whole FLOP."""
    graph = OpGraph(
        [
            Operator("a", "conv", 0.5, 8, time=12.4, attributes={"stride": 2, "pad": [1, 1], "mode": "same"}),
            Operator("b", "comm_send", time=3.0, attributes={"x": {"y": 1}, "mixed": [1, "a"], "kind": "mine"}),
        ],
        [Edge("a", "b", 5.0), Edge("a", "b")],
    )
    assert [json.loads(line) for line in to_chakra(graph).splitlines()] == [
        {"version": "0.0.4"},
        {
            "id": "0",
            "name": "a",
            "type": "COMP_NODE",
            "durationMicros": "12",
            "attr": [
                {"name": "stride", "int64Val": "2"},
                {"name": "pad", "int64List": {"values": ["1", "1"]}},
                {"name": "mode", "stringVal": "same"},
                {"name": "num_ops", "doubleVal": 0.5},
                {"name": "tensor_size", "int64Val": "8"},
                {"name": "kind", "stringVal": "conv"},
                {"name": "duration_us", "doubleVal": 12.4},
            ],
        },
        {"id": "1", "name": "b", "type": "COMM_SEND_NODE", "dataDeps": ["0"], "durationMicros": "3"},
    ]


def expressible(graph):
    """A graph as Chakra can express it: one edge for each pair, by consumer."""
    operators = [(op.name, op.kind, op.flops, op.nbytes, op.time, dict(op.attributes)) for op in graph.operators]
    return operators, sorted({(edge.src, edge.dst) for edge in graph.edges})


@settings(max_examples=20)
@given(graphs())
def test_a_written_graph_reads_back(graph):
    assert expressible(parse_chakra(to_chakra(graph))) == expressible(graph)


texts = st.text(st.characters(codec="utf-8"))
numbers = st.floats(0, allow_infinity=False, allow_nan=False)
values = st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts | numbers | st.lists(st.integers(0, 9), min_size=1)


@settings(max_examples=20)
@given(
    st.lists(texts.filter(bool), min_size=1, unique=True),
    numbers,
    st.dictionaries(texts.filter(lambda key: key not in ("kind", "num_ops")), values),
)
def test_any_name_time_and_attribute_reads_back(tmp_path_factory, names, time, attributes):
    graph = OpGraph([Operator(name, name, time, time, time=time, attributes=attributes) for name in names])
    path = tmp_path_factory.mktemp("chakra") / "t.json"
    write_chakra(graph, path)
    back = read_chakra(path)
    assert back.name == "t"
    assert expressible(back) == expressible(graph)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match="cannot read"):
        read_chakra(tmp_path)
    path = tmp_path / "t.json"
    path.write_bytes(b"\n\x80")
    with pytest.raises(FormatError, match="not a text file"):
        read_chakra(path)


junk = st.sampled_from(
    [None, True, -1, 0, 1, 10**400, 1e308, "", "0", "x", [], [None], {}, {"values": [3]}, "COMP_NODE"]
)


@given(st.data())
def test_any_wrong_value_reads_or_raises_our_error(data):
    """One value anywhere in a valid trace is another, or is not there."""
    document = at = json.loads(json.dumps(SNAKE))
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if not at[key] or not isinstance(at[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            break
        at = at[key]
    if data.draw(st.booleans()):
        at[key] = data.draw(junk)
    else:
        del at[key]
    with contextlib.suppress(SimschedError):
        assert len(parse_chakra(lines(document))) >= 1


@given(st.data())
def test_a_damaged_file_reads_or_raises_our_error(data):
    at = data.draw(st.integers(0, len(JSONIZER)))
    until = data.draw(st.integers(at, min(len(JSONIZER), at + 12)))
    text = JSONIZER[:at] + data.draw(st.text('{}[]",:0a\\ \n', max_size=3)) + JSONIZER[until:]
    with contextlib.suppress(SimschedError):
        assert len(parse_chakra(text)) >= 1
