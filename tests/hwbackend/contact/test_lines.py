"""The file of a contact: whole lines, whoever is killed; one writer; nothing twice."""

import gzip
import json

import pytest

from hwbackend.contact.lines import NAME, appending, is_contact, missing, read_record
from simsched.base.errors import BackendError, FileError, FormatError


def test_lines_are_there_after_a_writer_was_killed_in_the_midst_of_one(tmp_path):
    """The third line has no end: it is cut off as the file is opened again, and the next one begins on a new line."""
    with appending(tmp_path) as lines:
        lines.append(key="a", at=1.0, took=0.5)
        lines.append(failed="b", reason="no memory")
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes() + b'{"key":"c","at":')
    assert list(read_record(tmp_path).items) == ["a"]
    with appending(tmp_path) as lines:
        assert list(lines.record.items) == ["a"]
        lines.append(key="d", at=2.0, took=0.5)
    record = read_record(tmp_path)
    assert list(record.items) == ["a", "d"]
    assert missing(record, ["a", "b", "c", "d"]) == {"b": "no memory", "c": "no time left"}
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_an_item_counts_once(tmp_path):
    """The first line of an item is the one that counts."""
    with appending(tmp_path) as lines:
        lines.append(key="a", value=1)
        lines.append(key="a", value=2)
        assert lines.record.items["a"]["value"] == 1
    assert read_record(tmp_path).items["a"]["value"] == 1


def test_a_kept_file_may_be_compressed(tmp_path):
    with appending(tmp_path) as lines:
        lines.append(key="a")
    path = tmp_path / NAME
    path.with_name(f"{NAME}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert is_contact(tmp_path)
    assert list(read_record(tmp_path).items) == ["a"]


def test_two_processes_do_not_write_to_one_file(tmp_path):
    with (
        appending(tmp_path),
        pytest.raises(BackendError, match=r"another contact writes to .*: wait for its end, or choose another folder"),
        appending(tmp_path),
    ):
        pass


@pytest.mark.parametrize(("text", "reason"), [("[1]\n", "line 1 is no JSON object"), ("{}\nx\n", "line 2 is no JSON")])
def test_a_file_that_is_no_contact_is_refused_with_the_line(tmp_path, text, reason):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(FormatError, match=reason):
        read_record(tmp_path)


def test_a_folder_without_a_contact_is_refused(tmp_path):
    assert not is_contact(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        read_record(tmp_path)
