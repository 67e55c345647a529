"""The folder of measurements: few small files, always whole, that give back what was put in."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in import StandIn

import workloads
from simsched.base.errors import FileError, FormatError
from validation.hardware.store import HEADER, MOST_FILES, Store


@pytest.fixture(scope="module")
def profile():
    graph = workloads.from_spec("random:layered,n_ops=8,n_layers=3,n_edges=12,time=20:100,seed=1")
    return StandIn().profile(graph, in_situ=3)


def rounded(value):
    """JSON with all its numbers to three digits after the point."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else _to_three(value)


def _to_three(value):
    return round(value, 3) if isinstance(value, float) else value


def test_a_profile_comes_back_with_its_times_to_a_nanosecond(tmp_path, profile):
    document = json.loads(json.dumps(profile.to_dict()))
    Store(tmp_path).put("p", {"profile": document})
    found = Store(tmp_path)["p"]["profile"]
    assert rounded(found) == rounded(document)
    assert found["runs"][0]["latency"] == rounded(document["runs"][0]["latency"]) != document["runs"][0]["latency"]
    assert found["operators"][0]["samples"] == rounded(document["operators"][0]["samples"])


def test_what_documents_repeat_is_written_once(tmp_path, profile):
    """Ten documents with one run each of the same graph: the graph stands in the file once."""
    store, document = Store(tmp_path), profile.to_dict()
    for i in range(10):
        store.put(f"p{i}", {"profile": document})
    (path,) = tmp_path.glob("measurements-*.json")
    text = path.read_text()
    assert text.count('"format":"simsched.graph"') == text.count('"format":"simsched.cluster"') == 1
    assert len(text) < 0.45 * 10 * len(json.dumps(document))
    assert Store(tmp_path)["p0"] == Store(tmp_path)["p9"]


def test_files_are_filled_one_after_the_other(tmp_path):
    """Items of 400 bytes in files of at most 1000: two each, so five files hold ten; the eleventh has no room."""
    store = Store(tmp_path, most_nbytes=1000)
    for i in range(2 * MOST_FILES):
        store.put(f"{i:02}", {"x": "a" * 400})
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("measurements-*.json"))]
    assert len(sizes) == MOST_FILES
    assert max(sizes) <= 1000
    with pytest.raises(FileError, match="its 5 files are full"):
        store.put("more", {"x": "a" * 400})
    again = Store(tmp_path, most_nbytes=1000)
    assert list(again) == [f"{i:02}" for i in range(2 * MOST_FILES)]
    assert "more" not in again


def test_what_did_not_fit_leaves_nothing_behind(tmp_path, profile):
    """The second profile goes to a second file, with a graph of its own: the first file knows nothing of it."""
    document = profile.to_dict()
    store = Store(tmp_path, most_nbytes=len(json.dumps(document)))
    store.put("first", {"x": "b" * (len(json.dumps(document)) - 2000)})
    store.put("second", {"profile": document})
    assert "simsched.graph" not in (tmp_path / "measurements-1.json").read_text()
    assert "simsched.graph" in (tmp_path / "measurements-2.json").read_text()
    assert Store(tmp_path)["second"] == store["second"]


@settings(max_examples=30)
@given(item=st.dictionaries(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6,
).filter(lambda value: value is not None), max_size=4))  # fmt: skip
def test_any_other_item_comes_back_as_it_is(tmp_path_factory, item):
    item.pop("profile", None)
    folder = tmp_path_factory.mktemp("any")
    Store(folder).put("key", item)
    assert Store(folder)["key"] == item


def test_half_written_files_are_removed_and_nothing_else(tmp_path):
    (tmp_path / ".measurements-1.json.x1y2").write_text('{"format')
    (tmp_path / "note.txt").write_text("mine")
    store = Store(tmp_path)
    store.put("a", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["measurements-1.json", "note.txt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format":"simsched.graph","version":1}', "expected 'simsched.measurements'"),
        ('{"format":"simsched.measurements","version":1,"shared":[1,1],"items":{}}', "holds a value twice"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, text, message):
    (tmp_path / "measurements-1.json").write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        Store(tmp_path)
    assert "measurements-1.json" in str(caught.value)


def test_what_is_damaged_inside_is_named(tmp_path):
    (tmp_path / "measurements-1.json").write_text(
        '{"format":"simsched.measurements","version":1,"shared":[],"items":{"a":{"profile":{"graph":3}}}}'
    )
    with pytest.raises(FormatError, match="item 'a' is damaged"):
        _ = Store(tmp_path)["a"]
    (tmp_path / HEADER).write_text('{"format":"simsched.campaign","version":1}')
    with pytest.raises(FormatError, match="field 'header' is missing"):
        Store(tmp_path)
