"""WfFormat: its versions by hand, round trips, and what is refused."""

import contextlib
import copy
import json
import logging
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

from simsched.base.errors import FileError, FormatError, GraphError, SimschedError
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.formats.wfcommons import parse_wfcommons, read_wfcommons, to_wfcommons, write_wfcommons


def task(name, parents, children, reads, writes):
    return {
        "name": name,
        "id": f"{name}_0",
        "parents": parents,
        "children": children,
        "inputFiles": reads,
        "outputFiles": writes,
    }


NEW = {
    "name": "fork",
    "description": "two readers of one file",
    "schemaVersion": "1.5",
    "author": {"name": "x", "email": "x@example.org"},
    "workflow": {
        "specification": {
            "tasks": [
                task("split", [], ["work_0", "join_0"], ["in"], ["a", "b"]),
                task("work", ["split_0"], ["join_0"], ["a", "in"], ["c"]),
                task("join", ["split_0", "work_0"], [], ["a", "b", "c"], ["out"]),
            ],
            "files": [{"id": name, "sizeInBytes": size} for name, size in zip("abc", (100, 20, 3), strict=True)]
            + [{"id": "in", "sizeInBytes": 7}, {"id": "out", "sizeInBytes": 9}],
        },
        "execution": {
            "makespanInSeconds": 10,
            "executedAt": "2024-01-01T00:00:00Z",
            "tasks": [
                {"id": "work_0", "runtimeInSeconds": 1.1, "command": {"program": "grep", "arguments": ["x"]}},
                {"id": "split_0", "runtimeInSeconds": 12.16},
            ],
        },
    },
}  # fmt: skip
FORK = OpGraph(
    [Operator("split", time=12_160_000.0), Operator("work", "grep", time=1_100_000.0), Operator("join")],
    [Edge("split", "work", 100.0), Edge("split", "join", 120.0), Edge("work", "join", 3.0)],
    "fork",
)
"""split writes a (100) and b (20): work reads a, join both; join reads c (3) of work. `in` has no producer."""


def old(version, runtime, size):
    """The same workflow as it is in versions with one list of tasks."""

    def files(**links):
        sizes = {"a": 100, "b": 20, "c": 3, "in": 7, "out": 9}
        return [{"name": name, "link": link, size: sizes[name]} for link, names in links.items() for name in names]

    return {
        "name": "fork",
        "schemaVersion": version,
        "wms": {"name": "Pegasus", "version": "5"},
        "workflow": {
            "tasks": [
                {"name": "split", "type": "compute", runtime: 12.16, "files": files(input=["in"], output=["a", "b"])},
                {
                    "name": "work",
                    "id": "ID1",
                    "type": "compute",
                    "category": "grep",
                    "parents": ["split"],
                    runtime: 1.1,
                    "files": files(input=["a", "in"], output=["c"]),
                },
                {
                    "name": "join",
                    "type": "compute",
                    "parents": ["split", "ID1"],
                    "files": files(input=["a", "b", "c"], output=["out"]),
                },
            ]
        },
    }


@pytest.mark.parametrize(
    "document",
    [NEW, NEW | {"schemaVersion": "1.6"}, old("1.3", "runtime", "size"), old("1.4", "runtimeInSeconds", "sizeInBytes")],
    ids=["1.5", "1.6", "1.3", "1.4"],
)
def test_every_version_holds_the_same_graph(document):
    assert parse_wfcommons(document) == FORK


@pytest.mark.parametrize("version", ["1.2", "1.7", "2.0", "", "1.5 " * 1000])
def test_other_versions_are_refused(version):
    with pytest.raises(FormatError, match=re.escape("this release reads WfFormat 1.3, 1.4, 1.5, 1.6")) as caught:
        parse_wfcommons(NEW | {"schemaVersion": version}, "w.json")
    assert len(str(caught.value)) < 200


def edited(change):
    document = copy.deepcopy(NEW)
    change(document["workflow"]["specification"], document["workflow"]["execution"])
    return document


def test_an_edge_stated_at_one_end_only_is_taken(caplog):
    def change(specification, execution):
        specification["tasks"][0]["children"] = ["join_0"]
        specification["tasks"][2]["parents"] = ["work_0"]

    with caplog.at_level(logging.WARNING):
        graph = parse_wfcommons(edited(change), "w.json")
    assert sorted((edge.src, edge.dst) for edge in graph.edges) == [
        ("split", "join"),
        ("split", "work"),
        ("work", "join"),
    ]
    assert caplog.messages == ["w.json: 2 of 3 dependencies stand at one end only; they were taken"]


def test_edges_stated_at_both_ends_are_no_reason_to_warn(caplog):
    parse_wfcommons(NEW)
    parse_wfcommons(old("1.3", "runtime", "size"))  # has no children, and needs none
    assert caplog.messages == []


def test_tasks_of_one_name_are_called_by_id():
    def change(specification, execution):
        for row in specification["tasks"]:
            row["name"] = "same"

    assert parse_wfcommons(edited(change)).names == ("split_0", "work_0", "join_0")


def test_without_execution_operators_have_no_time():
    document = copy.deepcopy(NEW)
    del document["workflow"]["execution"]
    assert {op.time for op in parse_wfcommons(document).operators} == {None}


def test_files_of_one_name_in_other_folders_are_others():
    """b reads x/f (5), which nobody writes; a writes y/f (6)."""
    tasks = [
        {"name": "a", "files": [{"path": "y/", "name": "f", "link": "output", "size": 6}]},
        {"name": "b", "parents": ["a"], "files": [{"path": "x/", "name": "f", "link": "input", "size": 5}]},
    ]
    graph = parse_wfcommons({"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": tasks}})
    assert graph.edges[0].nbytes == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, e: s.pop("tasks"), "w.json: workflow.specification: field 'tasks' is missing"),
        (lambda s, e: s.update(tasks={}), "field 'tasks' must be a list"),
        (lambda s, e: s["tasks"][1].pop("id"), "specification.tasks[1]: field 'id' is missing"),
        (lambda s, e: s["tasks"][1].update(id="join_0"), "tasks[2]: id 'join_0' stands twice"),
        (lambda s, e: s["tasks"][1].update(parents="split_0"), "tasks[1]: field 'parents' must be a list"),
        (lambda s, e: s["tasks"][1].update(parents=[1]), "tasks[1]: field 'parents' must hold texts"),
        (lambda s, e: s["tasks"][1].update(parents=["split"]), "field 'parents' names 'split', which is no task"),
        (lambda s, e: s["tasks"][1].update(children=["x"]), "field 'children' names 'x', which is no task"),
        (lambda s, e: s["files"].pop(0), "file 'a' is not in the list of files"),
        (lambda s, e: s["files"].append(s["files"][0]), "file 'a' stands twice"),
        (lambda s, e: s["files"][0].update(sizeInBytes=-1), "files[0]: the size of a file must be finite"),
        (lambda s, e: s["files"][0].update(sizeInBytes=float("nan")), "files[0]: the size of a file must be finite"),
        (lambda s, e: s["files"][0].update(sizeInBytes=10**999), "files[0]: field 'sizeInBytes' is too large"),
        (lambda s, e: s["files"][0].update(sizeInBytes="1"), "files[0]: field 'sizeInBytes' must be a number"),
        (lambda s, e: e["tasks"][0].update(id="x"), "execution.tasks[0]: there is no task of id 'x'"),
        (lambda s, e: e["tasks"][0].update(runtimeInSeconds="1"), "'runtimeInSeconds' must be a number"),
        (lambda s, e: e["tasks"][0].update(command=[]), "field 'command' must be an object"),
    ],
)
def test_what_is_no_wfformat_is_refused(change, message):
    with pytest.raises(FormatError, match=re.escape(message)):
        parse_wfcommons(edited(change), "w.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, e: e["tasks"][0].update(runtimeInSeconds=-1), "w.json: .*operator 'work': time must be"),
        (lambda s, e: e["tasks"][0].update(runtimeInSeconds=1e305), "operator 'work': time must be"),
        (lambda s, e: s["tasks"][0].update(parents=["join_0"]), "w.json: the edges form a cycle"),
        (lambda s, e: s["tasks"][0].update(parents=["split_0"]), "w.json: the edges form a cycle"),
        (lambda s, e: [f.update(sizeInBytes=1e308) for f in s["files"]], "edge split -> join: nbytes must be finite"),
    ],
)
def test_what_no_graph_can_be_is_refused(change, message):
    with pytest.raises(GraphError, match=message):
        parse_wfcommons(edited(change), "w.json")


def test_a_workflow_without_tasks_is_refused():
    with pytest.raises(GraphError, match="empty"):
        parse_wfcommons({"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": []}})


def test_names_that_stand_twice_are_no_references():
    document = old("1.3", "runtime", "size")
    document["workflow"]["tasks"][1]["name"] = "split"
    with pytest.raises(FormatError, match="'split', which is the name of several tasks"):
        parse_wfcommons(document)


def test_what_tasks_of_old_versions_say():
    """The program comes before the category; of two sizes of a file the larger counts; a name before an id."""
    tasks = [
        {"name": "a", "id": "b", "files": [{"name": "f", "link": "output", "size": 9}]},
        {"name": "b", "id": "c", "files": [{"name": "f", "link": "input", "size": 4}], "command": {"program": "grep"}},
        {"name": "d", "parents": ["b"], "category": "x"},
    ]
    tasks[1] |= {"parents": ["a"], "category": "y"}
    graph = parse_wfcommons({"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": tasks}})
    assert list(graph.edges) == [Edge("a", "b", 9.0), Edge("b", "d", 0.0)]
    assert [op.kind for op in graph.operators] == ["op", "grep", "x"]


def test_unknown_links_are_refused():
    document = old("1.3", "runtime", "size")
    document["workflow"]["tasks"][0]["files"][0]["link"] = "both"
    with pytest.raises(FormatError, match=re.escape("tasks[0].files[0]: field 'link' must be 'input' or 'output'")):
        parse_wfcommons(document)


def test_written_document():
    """a (3 us) -> b (5 us), 1.5 bytes rounded up to 2; the longest path takes 8 us."""
    graph = OpGraph([Operator("a", time=3.0), Operator("b/1", "conv", time=5.0)], [Edge("a", "b/1", nbytes=1.5)])
    assert to_wfcommons(graph) == {
        "name": "graph",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": "a",
                        "id": "a",
                        "parents": [],
                        "children": ["op.1"],
                        "inputFiles": [],
                        "outputFiles": ["edge0"],
                    },
                    {
                        "name": "b/1",
                        "id": "op.1",
                        "parents": ["a"],
                        "children": [],
                        "inputFiles": ["edge0"],
                        "outputFiles": [],
                    },
                ],
                "files": [{"id": "edge0", "sizeInBytes": 2}],
            },
            "execution": {
                "makespanInSeconds": 8e-6,
                "executedAt": "1970-01-01T00:00:00Z",
                "tasks": [
                    {"id": "a", "runtimeInSeconds": 3e-6, "command": {"program": "op"}},
                    {"id": "op.1", "runtimeInSeconds": 5e-6, "command": {"program": "conv"}},
                ],
            },
        },
    }


def test_times_that_add_up_to_more_than_a_number_are_written(tmp_path):
    graph = OpGraph([Operator("a", time=1e308), Operator("b", time=1e308)], [Edge("a", "b")], "big")
    write_wfcommons(graph, tmp_path / "w.json")
    assert read_wfcommons(tmp_path / "w.json") == graph


def test_parallel_edges_become_one():
    document = to_wfcommons(OpGraph([Operator("a"), Operator("b")], [Edge("a", "b", 1.0), Edge("a", "b", 2.0)]))
    assert document["workflow"]["specification"]["tasks"][1]["parents"] == ["a"]
    assert list(parse_wfcommons(document).edges) == [Edge("a", "b", 3.0)]


def test_ids_never_meet_a_name():
    graph = OpGraph([Operator("a b"), Operator("op.0"), Operator("op.0."), Operator("c d")])
    assert [row["id"] for row in to_wfcommons(graph)["workflow"]["specification"]["tasks"]] == [
        "op.0..", "op.0", "op.0.", "op.3",
    ]  # fmt: skip


def expressible(graph):
    """A graph as WfFormat can express it: kinds of operators with a time, one edge for each pair."""
    sizes = {}
    for edge in graph.edges:
        sizes[edge.src, edge.dst] = sizes.get((edge.src, edge.dst), 0.0) + edge.nbytes
    operators = [(op.name, op.time, "op" if op.time is None else op.kind) for op in graph.operators]
    return graph.name, operators, dict(sorted(sizes.items()))


@settings(max_examples=20)
@given(graphs())
def test_a_written_graph_reads_back(graph):
    document = json.loads(json.dumps(to_wfcommons(graph)))
    assert expressible(parse_wfcommons(document)) == expressible(graph)


@settings(max_examples=20)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, unique=True), st.integers(0, 10**15))
def test_any_name_and_any_time_of_15_digits_reads_back(names, digits):
    graph = OpGraph([Operator(name, time=digits / 10**k) for k, name in enumerate(names)])
    assert parse_wfcommons(to_wfcommons(graph)).operators == graph.operators


def test_files(tmp_path):
    path = tmp_path / "w.json"
    write_wfcommons(FORK, path)
    assert expressible(read_wfcommons(path)) == expressible(FORK)
    with pytest.raises(FileError):
        read_wfcommons(tmp_path)
    for content in (b"", b"[]", b"null", b"{", b"\x80", b"[" * 100_000, b'{"schemaVersion": 1.5}', b"9" * 5000):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=re.escape("w.json")):
            read_wfcommons(path)


junk = st.sampled_from(
    [None, True, -1, 0, 10**400, 1e308, float("nan"), "", "split", "join_0", "a", [], [None], {}, {"id": 1}, "\ud800"]
)
documents = st.sampled_from([NEW, old("1.3", "runtime", "size"), old("1.4", "runtimeInSeconds", "sizeInBytes")])


@given(documents, st.data())
def test_any_wrong_value_reads_or_raises_our_error(document, data):
    """One value anywhere in a valid document is another, or is not there."""
    document = at = copy.deepcopy(document)
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
        assert len(parse_wfcommons(document)) >= 1
