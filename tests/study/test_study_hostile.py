"""Schedulers that stop, end or tamper with their process: each row ends, the others are as they should be."""

import os
import time
from contextlib import suppress
from pathlib import Path

import hostile
import pytest

import simsched as ss
from simsched.experiments.study.execution import pools
from workloads import load_kind

STATUSES = {
    "disarms_and_sleeps": "timeout",
    "disarms_and_computes": "timeout",
    "disarms_and_sleeps_in_c": "timeout",
    "blocks_signals": "timeout",
    "catches_everything": "timeout",
    "stops": "timeout",
    "stops_its_group": "timeout",
    "stops_its_parent": "timeout",
    "stops_its_parent_and_returns": "ok",
    "forks_and_hangs": "timeout",
    "forks_away": "timeout",
    "leaves_a_program": "ok",
    "leaves_a_program_and_hangs": "timeout",
    "half_a_message": "failed",
    "closes_all": "failed",
    "replaces_files": "failed",
    "exits": "failed",
    "replaces_itself": "failed",
    "raises_the_unspeakable": "failed",
    "raises_the_endless": "timeout",
}


@pytest.fixture
def impatient(monkeypatch):
    """Processes are ended sooner."""
    monkeypatch.setattr(pools, "_MARGIN", 0.5)
    monkeypatch.setattr(pools, "_SILENT", 1)


def left():
    """Programs that schedulers started in processes of this one, and that have not ended."""
    mine, found = f"PYTEST_XDIST_WORKER={os.environ.get('PYTEST_XDIST_WORKER', '')}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(hostile.LATE).encode() in (folder / "cmdline").read_bytes():
                environment = (folder / "environ").read_bytes()
                found += [folder.name] * (mine in environment or mine.endswith(b"=\0"))
    return found


@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_every_row_of_a_hostile_scheduler_ends(executor, impatient, tmp_path):
    """All in one study, a scheduler that is as it should be behind each of them; nothing is left of what they start."""
    schedulers = [name for hostile_one in STATUSES for name in (f"hostile:{hostile_one}", None)]
    usual = ({"scheduler": "lios", "streams": 2 + i} for i in range(len(schedulers)))
    study = ss.Study(
        "hostile",
        [name or next(usual) for name in schedulers],
        {"kind": "layered", "n_ops": 20, "n_layers": 4},
        {"gpu": "a100"},
        execution={"time_limit": 0.5, "memory_limit": 1_500_000_000},
    )
    rows = ss.run_study(study, tmp_path / "rows", load=load_kind, executor=executor, workers=2).rows
    statuses = {row["scheduler"].removeprefix("hostile:"): row["status"] for row in rows}
    assert {name: statuses.pop(name) for name in STATUSES} == STATUSES
    assert set(statuses.values()) == {"ok"}
    deadline = time.monotonic() + 10
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left() == []
