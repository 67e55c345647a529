"""Studies whose processes are killed at random: ``pytest -m chaos -n0 -s``.

``CHAOS_MINUTES`` (1) says how long, ``CHAOS_SEED`` (0) where to begin, ``CHAOS_LOG`` the file that gets what was seen.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CASES = (
    "forks",
    "forks_and_stays",
    "hangs",
    "exits",
    "allocates",
    "grows",
    "fails",
    "closes",
    "threads",
    "clock_set_back",
)
WAYS = ("processes", "dask", "dask apart")
SEEDS = 6
# of a scheduler apart, as a study sets it for its own: the usual ones let a worker be silent for five minutes
PATIENCE = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30 s", "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
everyone = []  # processes that this one started
# s that a run may take in the end, when nothing is killed any more: of six rows that close their files each takes two
# workers of Dask down, for 30 s and what it takes to start them again
BOUND = 480.0
STUDY = f"""
name = "chaos"
schedulers = ["sequential", "lios", {", ".join(f'"study_cases:{name}"' for name in CASES)}]
seeds = {SEEDS}
workload = {{kind = "layered", n_ops = 30, n_layers = 5}}
cluster = {{gpu = "a40", gpus = 2}}
execution = {{time_limit = 1.0, memory_limit = 1_000_000_000}}
"""


def marked(mark):
    """Processes that carry a mark in their environment, those that have ended aside."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            own = f"CHAOS_MARK={mark}\0".encode() in (folder / "environ").read_bytes()
            if own and (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(folder.name))
    return found


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def no_rights():
    """Let root, too, write nowhere where its folders are read-only."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE: from the next program on


def started(arguments, mark, output, preexec_fn=no_rights, **options):
    paths = os.pathsep.join([str(ROOT), str(HERE)])
    environment = {**os.environ, **PATIENCE, "PYTHONPATH": paths, "CHAOS_MARK": mark}
    with output.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=file, stderr=file, env=environment, preexec_fn=preexec_fn, **options
        )
    everyone.append(process)
    return process


class Apart:
    """A Dask scheduler and two workers in processes of their own."""

    def __init__(self, folder, mark):
        self.folder, self.mark, self.processes = folder, mark, []

    def address(self):
        if any(process.poll() is not None for process in self.processes) or not self.processes:
            self.close()
            file = self.folder / "scheduler.json"
            file.unlink(missing_ok=True)
            log = self.folder / "dask.log"
            run = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
            self.processes = [started([*run, "--scheduler-file", str(file)], self.mark, log)]
            deadline = time.monotonic() + 60
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(0.2)
            worker = ["-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard", "--death-timeout", "10"]
            self.processes += [
                started([*worker, "--scheduler-file", str(file)], self.mark, log, cwd=self.folder) for _ in range(2)
            ]
        return json.loads((self.folder / "scheduler.json").read_text())["address"]

    def close(self):
        kill(process.pid for process in self.processes)
        for process in self.processes:
            process.wait(10)
        kill(marked(self.mark))


def study_run(folder, mark, *how, **options):
    """A process that runs the study of a folder into it."""
    words = ["-m", "simsched", "study", "run", str(folder / "study.toml"), "-o", str(folder / "rows"), *how]
    return started(words, mark, folder / "output", cwd=HERE, **options)


def limited():
    no_rights()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def round_of(seed, way, folder):
    """What came of a study that was shot at for some seconds, and then left alone."""
    rng = random.Random(seed)
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY)
    mine, others = f"{os.getpid()}-{seed}-main", f"{os.getpid()}-{seed}-dask"
    apart, seen = Apart(folder, others), Counter()
    ways = {"processes": ["--workers", "2"], "dask": ["--dask", "local", "--workers", "2"]}

    def run(**options):
        return study_run(folder, mine, *(ways.get(way) or ["--dask", apart.address()]), **options)

    until = time.monotonic() + rng.uniform(5, 20)
    rows = folder / "rows"
    rows.mkdir()
    main = run()
    while time.monotonic() < until:
        time.sleep(rng.uniform(0.1, 3.0))
        rows.chmod(0o700)
        what = rng.choice(["one", "one", "one", "main", "all", "two mains", "disk full", "read-only", "dask"])
        there = marked(mine)
        if what == "one" and there:
            kill([rng.choice(there)])
        elif what == "main":
            kill([main.pid])
        elif what == "all":
            kill(there)
        elif what == "dask" and (those := marked(others)):
            kill([rng.choice(those)])
        elif what == "two mains":
            run()
        elif what == "disk full":
            run(preexec_fn=limited)
        elif what == "read-only":
            rows.chmod(0o500)
            run()
        seen[what] += 1
        if main.poll() is not None:
            main = run()
    kill(marked(mine))
    rows.chmod(0o700)
    begun = time.monotonic()
    status = None
    while status != 0 and time.monotonic() - begun < BOUND:
        main = run()
        try:
            status = main.wait(max(1.0, BOUND - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            break
    seconds = time.monotonic() - begun
    deadline = time.monotonic() + 10
    while (left := marked(mine)) and time.monotonic() < deadline:
        time.sleep(0.1)
    kill(left)
    apart.close()
    while everyone:
        everyone.pop().wait(10)
    found = [json.loads(line) for line in (rows / "rows.jsonl").read_text().splitlines()]
    counts = Counter(row["index"] for row in found)
    n_rows = SEEDS * (2 + len(CASES))
    return {
        "seed": seed,
        "way": way,
        "events": dict(seen),
        "lost": n_rows - len(counts),
        "twice": sum(n > 1 for n in counts.values()),
        "hung": status != 0,
        "left": len(left),
        "seconds": round(seconds, 1),
        "statuses": dict(Counter(f"{row['scheduler']} {row['status']}" for row in found)),
    }


def test_whatever_dies_every_row_is_there_once(tmp_path):
    faulthandler.cancel_dump_traceback_later()  # every run has a bound; all may take longer than a usual test may
    minutes, seed = float(os.environ.get("CHAOS_MINUTES", "1")), int(os.environ.get("CHAOS_SEED", "0"))
    until = time.monotonic() + 60 * minutes
    ways = os.environ.get("CHAOS_WAYS", ",".join(WAYS)).split(",")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    begun, rounds = time.monotonic(), []
    while time.monotonic() < until:
        rounds.append(round_of(seed, ways[seed % len(ways)], tmp_path / str(seed)))
        print(rounds[-1], flush=True)
        seed += 1
        total = {name: sum(found[name] for found in rounds) for name in ("lost", "twice", "hung", "left")}
        log = {"commit": commit, "minutes": round((time.monotonic() - begun) / 60, 1), **total, "rounds": rounds}
        if "CHAOS_LOG" in os.environ:
            Path(os.environ["CHAOS_LOG"]).write_text(json.dumps(log, indent=1) + "\n")
    assert total == {"lost": 0, "twice": 0, "hung": 0, "left": 0}


def test_a_folder_that_is_read_only(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "rows").mkdir(mode=0o500)
    assert study_run(tmp_path, "read-only").wait(60) == 2
    assert "cannot write" in (tmp_path / "output").read_text()
