"""The folder of measurements: two files, always whole, that give back what was put in."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbackend.contact.store import HEADER, ITEMS, Store
from simsched.base.errors import FormatError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)
@given(items=st.dictionaries(st.text(), st.dictionaries(st.text(), values, max_size=4), max_size=3))
def test_items_come_back_as_they_are_in_their_order(tmp_path_factory, items):
    folder = tmp_path_factory.mktemp("any")
    store = Store(folder)
    for key, item in items.items():
        store.put(key, item)
        store.header[key] = item
        store.save_header()
    for kept in (store, Store(folder)):
        assert list(kept.items()) == list(items.items())
        assert kept.header == items


def test_half_written_files_are_removed_and_nothing_else(tmp_path):
    (tmp_path / f".{ITEMS}.x1y2").write_text('{"format')
    (tmp_path / "note.txt").write_text("mine")
    Store(tmp_path).put("a", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [ITEMS, "note.txt"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (HEADER, b'{"format":"simsched.graph","version":1}', "expected 'simsched.campaign'"),
        (HEADER, b'{"format":"simsched.campaign","version":1}', "field 'header' is missing"),
        (ITEMS, b'["a", {}]\n', "is damaged"),
        (ITEMS, gzip.compress(b'["a", {}]\n', mtime=0)[:-3], "is damaged"),
        (ITEMS, gzip.compress(b'["a", {}]\n', mtime=0)[:10] + b"\xff" * 20, "is damaged"),
        (ITEMS, gzip.compress(b"3\n", mtime=0), "is damaged"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        Store(tmp_path)
    assert name in str(caught.value)
