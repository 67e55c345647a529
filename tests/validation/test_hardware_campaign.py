"""The measurement campaign: what is measured first, what a fault costs, and going on after it."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from stand_ins import TINY, SimulatedBackend

import hwbackend
from hwbackend.contact.store import HEADER, ITEMS, Store
from simsched.base.errors import BackendError, FormatError
from simsched.experiments.accuracy import digest
from simsched.model.profile import Profile
from simsched.model.program import EXECUTIONS
from validation.hardware.campaign import AGAIN, MOST_ATTEMPTS, Campaign, DeviceLostError, main, opened, prepare
from validation.hardware.sections import PLANS, Bench, NotYetError, Section, sections_of

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    """Seconds that pass only when an item takes them."""

    def __init__(self):
        self.now, self.tried, self.done = 0.0, [], []

    def __call__(self):
        return self.now

    def item(self, key, seconds=1.0, error=None):
        def measure():
            self.now += seconds
            self.tried.append(key)
            if error is not None:
                raise error
            self.done.append(key)
            return {"seconds": seconds}

        return key, measure

    def section(self, name, seconds, share=1.0):
        return Section(name, share, dict(self.item(f"{name}{i}", each) for i, each in enumerate(seconds)))


def keys_of(sections):
    return [key for part in sections for key in part.items]


def tiny(folder, backend):
    """What is kept of the tiny plan on what stands for a device."""
    store = Store(folder)
    Campaign(store, sections_of([Bench(backend, store, TINY)]), 600.0).run()
    return Store(folder)


# Order and time


@pytest.mark.parametrize(
    ("given", "seconds", "measured", "ended"),
    [
        ([("a", [1.0] * 3), ("b", [1.0] * 2)], 100.0, [3, 2], 5.0),
        # shares 1, 1 and 2: a may take 20 * 1/4 = 5 s, b 15 * 1/3 = 5 s, c the 10 s that are left
        ([("a", [1.0] * 99), ("b", [1.0] * 99), ("c", [1.0] * 99, 2.0)], 20.0, [5, 5, 10], 20.0),
        # 10 s each, of which b needs 2: a gets the other 8 in the second turn
        ([("a", [1.0] * 99), ("b", [1.0] * 2)], 20.0, [18, 2], 20.0),
        # the third item of 4 s would end at 12 s
        ([("a", [4.0] * 9)], 10.0, [2], 8.0),
        # the second is begun at 9 + 9 <= 20, then half of all are quick: 11 fit in
        ([("a", [9.0] + [1.0] * 30)], 20.0, [12], 20.0),
    ],
    ids=["all", "shares", "time given back", "too late", "one slow item"],
)
def test_sections_are_measured_in_order_each_in_its_share_of_the_time(tmp_path, given, seconds, measured, ended):
    clock = Clock()
    sections = [clock.section(*each) for each in given]
    Campaign(Store(tmp_path), sections, seconds, clock=clock).run()
    assert [sum(key.startswith(name) for key in clock.done) for name, *_ in given] == measured
    assert clock.now == ended
    store = Store(tmp_path)
    assert list(store) == clock.done
    missing = [key for key in keys_of(sections) if key not in clock.done]
    assert store.header["unmeasured"] == dict.fromkeys(missing, "no time left")
    assert sum(store.header["seconds"].values()) == ended


# Faults


def test_a_failed_item_is_a_named_skip_tried_in_two_processes_and_the_rest_goes_on(tmp_path):
    """What waits for another item is no attempt."""
    clock, lines = Clock(), []
    errors = {"bad": BackendError("out of memory"), "odd": ZeroDivisionError("oh"), "later": NotYetError("not yet")}
    items = dict(clock.item(key, error=errors.get(key)) for key in (*errors, "good"))
    for _ in range(4):
        sections = [Section("a", 1.0, items), clock.section("b", [1.0])]
        Campaign(Store(tmp_path), sections, 100.0, clock=clock, tell=lines.append).run()
    assert clock.done == ["good", "b0"]
    assert [clock.tried.count(key) for key in errors] == [MOST_ATTEMPTS, 2, 4]
    reasons = {"bad": "out of memory", "odd": "ZeroDivisionError: oh", "later": "not yet"}
    assert Store(tmp_path).header["unmeasured"] == reasons
    assert {"skipped bad: out of memory", "skipped odd: ZeroDivisionError: oh"} <= set(lines)
    assert Store(tmp_path).header["skipped"]["later"]["attempts"] == 0


def test_a_device_that_no_longer_answers_ends_the_process(tmp_path, monkeypatch, capsys):
    """What was measured is kept, what failed is named, nothing else is tried; another process is asked for."""
    clock = Clock()
    items = dict([clock.item("a0"), clock.item("bad", error=BackendError("illegal address"))])
    sections = [Section("a", 1.0, items), clock.section("b", [1.0] * 3)]

    def check():
        raise RuntimeError("illegal address was encountered")

    with pytest.raises(DeviceLostError, match=r"does not answer after bad: illegal address was") as lost:
        Campaign(Store(tmp_path), sections, 99.0, check, clock=clock).run()
    assert list(Store(tmp_path)) == ["a0"] == clock.done
    assert Store(tmp_path).header["skipped"] == {"bad": {"attempts": 1, "reason": "illegal address"}}
    monkeypatch.setattr(Campaign, "run", lambda _campaign: (_ for _ in ()).throw(lost.value))
    assert main([str(tmp_path / "other"), "--backend", "stand_ins:make", "--plan", "small"]) == AGAIN
    assert capsys.readouterr().err == f"error: {lost.value}\n"


# On what stands for a device


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The tiny plan without interruption."""
    return tiny(tmp_path_factory.mktemp("whole"), SimulatedBackend())


def test_the_tiny_plan_is_measured_whole(whole):
    """No schedule at random that is held out is one of the training."""
    assert whole.header["unmeasured"] == {}
    sections = sections_of([Bench(SimulatedBackend(), whole, TINY)])
    assert list(whole) == keys_of(sections)
    assert [part.name.partition("/")[0] for part in sections] == ["kernels", "profiles", "held-out", "figures"]
    runs = {key: Profile.from_dict(whole[key]["profile"]).runs for key in whole if "profile" in whole[key]}
    held = {key.rpartition("dag/")[2]: run for key, (run, *_) in runs.items() if key.startswith("held-out/")}
    assert (held["greedy/graph"].name, held["greedy/graph"].program.execution) == ("greedy/graph", "graph")
    assert {len(run.latency) for run in held.values()} == {TINY.repeats}
    assert {run.program.execution for run in held.values()} == {*EXECUTIONS}
    seen = [digest(run.program) for run in runs["profiles/simulated/dag"]]
    assert not any(digest(run.program) in seen for way, run in held.items() if way.startswith("random-"))
    ways = ["events/sequential", "events/parallel", "graph/sequential", "graph/parallel"]
    assert [run.name for run in runs["hios-fig1/simulated/8"]] == ways
    assert sorted(path.name for path in whole.folder.iterdir()) == [HEADER, ITEMS]


@pytest.mark.parametrize("n", [1, 7])
def test_a_run_that_is_interrupted_goes_on_where_it_stopped(tmp_path, whole, n):
    """Interrupted in its n-th replay: the same items in the end, none of those already there measured again."""
    replays = count(1)

    def before(_program):
        if next(replays) == n:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path, SimulatedBackend(before=before))
    kept = {**Store(tmp_path)}
    assert len(kept) < len(whole)
    for _ in range(2):
        backend = SimulatedBackend()
        found = tiny(tmp_path, backend)
        assert list(found) == list(whole)
        assert kept.items() <= {**found}.items()
        assert found.header["skipped"] == {}
    assert backend.ran == []


def test_a_fault_of_the_device_costs_what_it_hits_and_what_builds_on_it(tmp_path, whole):
    """The profile fails in both attempts: it and the schedules of that graph are missing, all else is there."""

    def before(program):
        if program.graph.name.startswith("layered"):
            raise BackendError("kernel timeout")

    for _ in range(2):
        found = tiny(tmp_path, SimulatedBackend(before=before))
    missing = found.header["unmeasured"]
    assert sorted([*found, *missing]) == sorted(whole)
    assert missing.pop("profiles/simulated/dag") == "kernel timeout"
    assert set(missing.values()) == {"dag has no profile"}


# Command line


def test_measurements_of_two_devices_are_not_mixed(tmp_path):
    h200 = {"cupy": {"device": "H200"}}
    prepare(Store(tmp_path), h200, "full")
    prepare(Store(tmp_path), h200 | {"torch": {"device": "H200"}}, "full")
    with pytest.raises(FormatError, match="holds measurements of H200, not of A100: choose another folder"):
        prepare(Store(tmp_path), {"cupy": {"device": "A100"}}, "full")
    with pytest.raises(FormatError, match="holds plan 'full', not 'small'"):
        prepare(Store(tmp_path), h200, "small")


def test_a_second_backend_is_left_out_that_cannot_be_used_or_is_on_another_device_unasked():
    lines, names = [], ["stand_ins:make", "no_such_module:make", "synthetic"]
    assert [backend.name for backend, _ in opened(names, lines.append, alike=True)] == ["simulated"]
    assert lines[0].startswith("skipped backend no_such_module:make: ")
    assert lines[1:] == ["skipped backend synthetic: it runs on surrogate a40"]
    assert [backend.name for backend, _ in opened(names, lines.append)] == ["simulated", "synthetic"]


def script(folder, *words, **environment):
    """The script's command line and its environment."""
    here = {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "tests"), "WORK": str(folder / "work")}
    return {
        "args": [str(ROOT / "validation/hardware/run_all.sh"), *words],
        "env": os.environ | here | environment,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }


def test_the_script_says_in_one_line_why_it_cannot_measure(tmp_path):
    """Without a folder, and without a GPU."""
    done = subprocess.run(**script(tmp_path, "--seconds"))
    assert (done.returncode, done.stdout, done.stderr[:7]) == (2, "", "usage: ")
    if {entry.name: entry.usable for entry in hwbackend.available()}["cupy"]:
        pytest.skip("there is a GPU")
    done = subprocess.run(**script(tmp_path, tmp_path / "out"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: backend cupy cannot be used here: ")
    assert list((tmp_path / "out").iterdir()) == []


def stored(folder):
    """Items by key as the file holds them; both files are whole."""
    for path in folder.glob(HEADER):
        assert json.loads(path.read_text())["format"] == "simsched.campaign"
    text = b"".join(gzip.decompress(path.read_bytes()) for path in folder.glob(ITEMS))
    return dict(map(json.loads, text.splitlines()))


def test_a_killed_run_leaves_whole_files_and_goes_on(tmp_path):
    """SIGKILL to all processes a moment after the 7th item: every file can be read before and after.

    The next run measures the rest, although one convolution ends its process each time: it is tried twice, the script
    goes on after both, and in the end it alone is missing.
    """
    out = tmp_path / "out"
    kept_code = os.environ.get("SIMSCHED_CACHE_DIR") or str(ROOT / "simsched" / "__pycache__")
    words = (out, "--backend", "stand_ins:make_deadly", "--plan", "small")
    call = script(tmp_path, *words, SIMSCHED_CACHE_DIR=kept_code)
    running = subprocess.Popen(**call, start_new_session=True)
    while len(stored(out)) < 7 and running.poll() is None:
        time.sleep(0.005)
    time.sleep(int.from_bytes(os.urandom(1)) / 5000.0)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    kept = stored(out)
    assert 7 <= len(kept) < 30
    done = subprocess.run(**call)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("went on after status") == MOST_ATTEMPTS
    sections = sections_of([Bench(SimulatedBackend(), Store(out), PLANS["small"])])
    assert sorted([*stored(out), "hios-fig1/simulated/64"]) == sorted(keys_of(sections))
    assert kept.items() <= stored(out).items()
    assert Store(out).header["unmeasured"] == {"hios-fig1/simulated/64": "the process ended while it was measured"}
    assert len(list(out.iterdir())) == 2
