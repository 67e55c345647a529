"""Runs of a contact: cut from the bottom, killed at any moment, and resumed."""

import json
import os
import random
import signal
import subprocess
import time
from itertools import pairwise

import pytest
from contacts import command, ran

from hwbackend.contact.fake import FakeDevice
from hwbackend.contact.lines import NAME, read_record
from hwbackend.contact.sections import SECTIONS, SIZES, all_items

FAKE = ("--backend=fake", "--backend-option=seed=5")


def wanted(size="small"):
    """Keys of all items, in the order of their worth."""
    items = all_items(FakeDevice().cluster, SIZES[size])
    return [item.key for section in SECTIONS for item in items[section]]


def measured_keys(folder):
    """Keys as the file has them, each line by itself."""
    rows = map(json.loads, (folder / NAME).read_text().splitlines())
    return [row["key"] for row in rows if "key" in row]


def require_cut_from_the_bottom(record, keys):
    """What was measured or cannot be measured on a fake is the beginning of the list."""
    tried = [key for key in keys if key in record.items or record.is_unsupported(key)]
    assert tried == keys[: len(tried)]
    return len(tried)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A contact that had the time for everything, and what it printed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, ran("run", folder, *FAKE, "--size=small")


def test_a_contact_measures_every_section_once(whole):
    """On a fake all but what needs a GPU, which says so; the anchor is measured every two seconds."""
    folder, (status, printed, errors) = whole
    assert (status, errors) == (0, "")
    record, keys = read_record(folder), wanted()
    assert sorted(measured_keys(folder)) == sorted(key for key in keys if not record.is_unsupported(key))
    assert {key.split("/")[0] for key in keys if record.is_unsupported(key)} == {"compile", "launches"}
    assert [line.split(":")[0] for line in printed.splitlines()][: len(SECTIONS)] == list(SECTIONS)
    assert [line["section"] for line in record.sections] == list(SECTIONS)
    assert all(line["before"]["sm_clock"] > 0.0 for line in record.sections)
    at = [line["at"] for line in record.anchors]
    pauses = [b - a for a, b in pairwise(at)]
    longest = max(line["took"] for line in record.items.values())
    assert max(pauses) < 2.0 + longest + 4.0  # a section begins by warming up


@pytest.mark.parametrize("seconds", [4, 16, 30])
def test_too_little_time_cuts_from_the_bottom(tmp_path, seconds):
    status, _, errors = ran("run", tmp_path, *FAKE, "--size=small", f"--seconds={seconds}")
    assert (status, errors) == (0, "")
    record = read_record(tmp_path)
    assert 0 < require_cut_from_the_bottom(record, wanted()) < len(wanted())
    last = max(line["at"] + line["took"] for line in record.items.values())
    assert last <= seconds + 4.0  # the last item may take a little longer than its kind


@pytest.mark.evidence
@pytest.mark.parametrize("seconds", [30, 60, 120, 480])
def test_the_usual_times_cut_from_the_bottom(tmp_path, seconds):
    status, _, errors = ran("run", tmp_path, *FAKE, f"--seconds={seconds}")
    assert (status, errors) == (0, "")
    count = require_cut_from_the_bottom(read_record(tmp_path), wanted("full"))
    assert (count == len(wanted("full"))) == (seconds == 480)


def killed_and_resumed(folder, moments, rng):
    """Kill runs in a folder after so many s each, then let one end; return the lines ``key`` in the end."""
    for moment in moments:
        words, options = command("run", folder, *FAKE, "--size=small", start_new_session=True)
        running = subprocess.Popen(words, **options)
        time.sleep(moment)
        if rng.random() < 0.5:
            os.killpg(running.pid, signal.SIGKILL)  # the run and the process of its section
        else:
            running.kill()  # the run alone
        running.communicate()
    status, _, errors = ran("run", folder, *FAKE, "--size=small")
    assert (status, errors) == (0, "")
    return measured_keys(folder)


def require_each_once(keys, whole):
    folder, _ = whole
    assert len(keys) == len(set(keys)), "an item was measured twice"
    assert sorted(keys) == sorted(measured_keys(folder)), "an item was lost"


def test_a_killed_contact_goes_on(tmp_path, whole):
    """Three kills at random moments, of the run alone or of all its processes."""
    rng = random.Random(0)
    require_each_once(killed_and_resumed(tmp_path, [rng.uniform(1.0, 6.0) for _ in range(3)], rng), whole)


@pytest.mark.evidence
def test_twenty_kills_lose_nothing(tmp_path, whole):
    rng = random.Random(1)
    require_each_once(killed_and_resumed(tmp_path, [rng.uniform(0.5, 8.0) for _ in range(20)], rng), whole)


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
