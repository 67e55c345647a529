"""Runs of a contact: cut from the bottom, killed at any moment, and resumed."""

import random
from itertools import pairwise

import pytest
from contacts import measured, ran

from hwbackend.contact import worker
from hwbackend.contact.lines import read_record
from hwbackend.contact.run import _counts, _expected_seconds
from hwbackend.contact.sections import SECTIONS, ContactItem
from simsched.base.errors import MissingDependencyError
from validation.contact import item_keys, kill_and_resume, measured_keys, tried_from_the_top, verdicts

FAKE = ("--backend=fake", "--backend-option=seed=5")


def require_cut_from_the_bottom(record, keys):
    """What was measured or cannot be measured on a fake is the beginning of the list."""
    tried = tried_from_the_top(record, keys)
    assert tried is not None
    return tried


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A contact that had the time for everything, and what it printed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, ran("run", folder, *FAKE, "--size=small")


def test_a_contact_measures_every_section_once(whole):
    """On a fake all but what needs a GPU, which says so; the anchor is measured every two seconds."""
    folder, (status, printed, errors) = whole
    assert (status, errors) == (0, "")
    record, keys = read_record(folder), item_keys("small")
    assert sorted(measured_keys(folder)) == sorted(key for key in keys if not record.is_unsupported(key))
    assert {key.split("/")[0] for key in keys if record.is_unsupported(key)} == {"compile"}
    assert [line.split(":")[0] for line in printed.splitlines()][: len(SECTIONS)] == list(SECTIONS)
    assert [line["section"] for line in record.sections] == list(SECTIONS)
    assert all(line["before"]["sm_clock"] > 0.0 for line in record.sections)
    at = [line["at"] for line in record.anchors]
    pauses = [b - a for a, b in pairwise(at)]
    longest = max(line["took"] for line in record.items.values())
    assert max(pauses) < 2.0 + longest + 4.0  # a section begins by warming up


@pytest.mark.parametrize("seconds", [4, 24])
def test_too_little_time_cuts_from_the_bottom(tmp_path, seconds):
    status, _, errors = ran("run", tmp_path, *FAKE, "--size=small", f"--seconds={seconds}")
    assert (status, errors) == (0, "")
    record = read_record(tmp_path)
    assert 0 < require_cut_from_the_bottom(record, item_keys("small")) < len(item_keys("small"))
    last = max(line["at"] + line["took"] for line in record.items.values())
    assert last <= seconds + 4.0  # the last item may take a little longer than its kind


def require_each_once(keys, whole):
    folder, _ = whole
    assert len(keys) == len(set(keys)), "an item was measured twice"
    assert sorted(keys) == sorted(measured_keys(folder)), "an item was lost"


def test_a_killed_contact_goes_on(tmp_path, whole):
    """Two kills at random moments, of the run alone or of all its processes."""
    rng = random.Random(0)
    require_each_once(kill_and_resume(tmp_path, [rng.uniform(1.0, 6.0) for _ in range(2)], rng), whole)


def test_a_finished_contact_is_not_measured_again(whole):
    folder, _ = whole
    before = measured_keys(folder)
    assert ran("run", folder, *FAKE, "--size=small")[0] == 0
    assert measured_keys(folder) == before


def test_a_folder_is_of_one_device(whole):
    folder, _ = whole
    status, _, errors = ran("run", folder, "--backend=fake", "--backend-option=seed=6", "--size=small")
    assert status == 2
    assert errors.count("\n") == 1
    assert "holds a contact with options {'seed': 5}, not {'seed': 6}: choose another folder" in errors


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--backend=nonsense",), "error: unknown backend 'nonsense'"),
        (("--backend=fake", "--backend-option=fault=x"), "error: unknown fault 'x'"),
        (("--backend=fake", "--backend-option=seed"), "error: --backend-option 'seed': expected name=value"),
        (("--backend=fake", "--size=huge"), "error: unknown size 'huge'"),
        (("--backend=fake", "--seconds=0"), "error: seconds and patience must be above 0"),
    ],
)
def test_what_cannot_run_is_refused_in_a_line(tmp_path, words, reason):
    status, printed, errors = ran("run", tmp_path, *words)
    assert (status, printed, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(reason)


def test_an_item_that_takes_long_is_given_its_time(tmp_path):
    """A process may be silent for as long as the last line says that its item takes, beyond the patience."""
    path = tmp_path / "lines"
    path.write_text('{"begin":"a","seconds":4.0}\n{"key":"a"}\n')
    middle = path.stat().st_size
    with path.open("a") as file:
        file.write('{"begin":"b","seconds":40.0}\n')
    end = path.stat().st_size
    assert _expected_seconds(path, 0, middle) == 0.0
    assert _expected_seconds(path, middle, end) == 40.0
    assert _expected_seconds(path, middle, end - 5) == 0.0  # a line without its end


def test_an_item_that_needs_a_package_which_is_missing_is_not_possible_here(tmp_path, monkeypatch):
    """It is no failure: the doctor has nothing to say about it, and it is not tried again."""

    def missing(_bench):
        raise MissingDependencyError("PyTorch is needed")

    monkeypatch.setattr(
        worker, "SECTIONS", {"compile": lambda _cluster, _size: [ContactItem("compile/x", 0.1, missing)]}
    )
    record = measured(tmp_path, ["compile"], seed=3)
    assert record.is_unsupported("compile/x")
    assert _counts(record, "compile") == "0 items, 0 failed, 1 not possible here"
    assert verdicts(record, seed=3) == {}
