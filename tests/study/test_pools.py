"""Whatever dies, rows are neither lost nor made twice."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from execution_cases import fatal, gives_up, killed_once, run, where

from simsched.experiments.study.execution import pool_of
from simsched.experiments.study.execution.pools import start_forkserver

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from functools import partial
from pathlib import Path
from execution_cases import stuck, where
from simsched.experiments.study.execution import Batches, pool_of

def keep(rows, done):
    with Path(sys.argv[1]).open("a") as file:
        file.writelines(f"{row['item']} {row['pid']}\\n" for row in rows)

if __name__ == "__main__":
    with pool_of("processes", 2) as pool:
        Batches(range(100_000), FUNCTION, pool, keep, None).run()
"""
FORKED = """
from multiprocessing import get_context
from execution_cases import run, where
from simsched.experiments.study.execution import pool_of

def rows():
    with pool_of("processes", 1) as pool:
        assert len(run(range(3), where, pool)[0]) == 3

if __name__ == "__main__":
    rows()
    child = get_context("fork").Process(target=rows, daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
"""
PATHS = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])


def alive(pid):
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def items_of(rows):
    return [row["item"] for row in rows]


@pytest.fixture(params=["processes", "dask"], scope="module")
def pool(request):
    with pool_of(request.param, 2) as pool:
        yield pool


def test_a_worker_killed_from_outside(pool):
    """The process that did the first rows is killed as soon as they are kept, while it is at the next ones."""
    killed = []

    def keep(rows):
        if not killed:
            killed.append(rows[0]["pid"])
            os.kill(killed[0], signal.SIGKILL)

    kept, _ = run(range(100), partial(where, seconds=0.002), pool, keep=keep)
    assert items_of(kept) == list(range(100))
    assert {row["pid"] for row in kept} - set(killed)


def test_an_item_killed_once(pool, tmp_path):
    kept, told = run(range(40), partial(killed_once, marks=tmp_path), pool)
    assert items_of(kept) == list(range(40))
    assert None not in [row["pid"] for row in kept]
    assert told[-1] == 40


def test_an_item_that_ends_its_process(pool):
    """It reads memory that is not there; all others are done."""
    kept, told = run(range(8, 18), fatal, pool)
    assert items_of(kept) == list(range(8, 18))
    assert [(row["item"], row["status"]) for row in kept if row["pid"] is None] == [(13, "died")]
    assert told[-1] == 10


def test_an_item_that_gives_up_beside_a_thread_that_goes_on():
    """Python would wait for the thread, and the pool for the process."""
    with pool_of("processes", 1) as pool:
        kept, _ = run(range(12, 15), gives_up, pool)
    assert [(row["item"], row["pid"] is None) for row in kept] == [(12, False), (13, True), (14, False)]


def test_the_process_that_is_copied_is_killed():
    """Before the first worker is made, and after the first rows."""
    from multiprocessing import forkserver

    def kill():
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)

    killed = []

    def keep(rows):
        if not killed:
            kill()
        killed.extend(rows)

    start_forkserver()
    kill()
    with pool_of("processes", 2) as pool:
        assert items_of(run(range(50), partial(where, seconds=0.002), pool, keep=keep)[0]) == list(range(50))


@pytest.fixture(params=["partial(where, seconds=0.01)"])
def script(tmp_path, request):
    """A run of its own group, like one in a terminal: the process, and what it kept so far."""
    rows = tmp_path / "rows"
    rows.touch()
    (tmp_path / "script.py").write_text(SCRIPT.replace("FUNCTION", request.param))
    process = subprocess.Popen(
        [sys.executable, tmp_path / "script.py", rows],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": PATHS},
    )
    yield process, lambda: [tuple(map(int, line.split())) for line in rows.read_text().splitlines()]
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("script", ["partial(where, seconds=0.01)", "stuck"], indirect=True)
def test_workers_do_not_outlive_the_main_process(script):
    process, rows = script
    assert soon(lambda: len({pid for _, pid in rows()}) >= 1)
    time.sleep(0.5)  # what hangs does by then
    process.kill()
    process.wait()
    assert soon(lambda: not any(alive(pid) for _, pid in rows()))
    items = sorted(item for item, _ in rows())
    assert len(set(items)) == len(items)


def test_ctrl_c_keeps_what_is_done(script):
    process, rows = script
    assert soon(lambda: len({pid for _, pid in rows()}) == 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1
    assert soon(lambda: not any(alive(pid) for _, pid in rows()))
    items = sorted(item for item, _ in rows())
    assert 0 < len(set(items)) == len(items) < 100_000


def test_a_process_forked_from_one_that_had_a_pool(tmp_path):
    """It may not wait for children that are not its own, and a pool of multiprocessing lets its own start none."""
    (tmp_path / "script.py").write_text(FORKED)
    environment = {**os.environ, "PYTHONPATH": PATHS}
    assert subprocess.run([sys.executable, tmp_path / "script.py"], env=environment, timeout=90).returncode == 0
