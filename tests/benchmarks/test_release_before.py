"""Seconds beside another checkout, such as the release before, in turns: ``SIMSCHED_OTHER=FOLDER pytest -m benchmark``.

Each process is a warm one: it has run before in both checkouts, and so there is machine code, and bytecode.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

import simsched as ss

OTHER = os.environ.get("SIMSCHED_OTHER")
TURNS = 5
COMMANDS = {
    "compare": "compare inception_v3 --gpu a100",
    "whatif": "whatif inception_v3 --gpu a100 --set overhead.launch=1.0",
    "show": "show inception_v3",
}
START = "import sys, workloads, simsched as ss; from time import perf_counter\n"
DAG = "workloads.random_layered(n_ops=1000, n_layers=42, rng=1), ss.Cluster.preset('a40', 4)"
PIECES = {
    "report of 10,000 spans": f"""
graph, cluster = {DAG}
trace, write = ss.simulate(ss.schedule(graph, cluster, 'round-robin'), cluster), ss.write_report
write(trace, 'page.html')
start = perf_counter()
write(trace, 'page.html')
print(perf_counter() - start, trace.makespan)
""",
    "calibrate, and again": """
import hwbackend
from simsched.experiments.accuracy import validate
graph, backend = workloads.random_layered(n_ops=24, n_layers=6, rng=3), hwbackend.get('synthetic')
start = perf_counter()
accuracy = validate(graph, backend, ['lios'], rounds=2, repeats=3, training=3, random_held_out=2)
print(perf_counter() - start, accuracy.calibration.cluster.devices[0].launch)
""",
    **{
        f"simulate {name}": f"""
graph, cluster = workloads.load({name!r}), ss.Cluster.preset('a100')
plan, times = ss.schedule(graph, cluster, {scheduler!r}), []
for _ in range(80):
    start = perf_counter()
    makespan = ss.simulate(plan, cluster).makespan
    times.append(perf_counter() - start)
print(min(times), makespan)
"""
        for name, scheduler in (("inception_v3", "sequential"), ("nasnet_a_large", "greedy"))
    },
    **{
        f"1,500 rows of a study, workers: {n}": f"""
def study(seeds):
    schedulers = 'sequential', 'lios', 'inter-lp', 'hios-lp', 'inter-mr', 'hios-mr'
    return ss.Study('speed', schedulers, {{'kind': 'layered'}}, {{'gpu': 'a40', 'gpus': 4}}, seeds=seeds)
if __name__ == '__main__':
    ss.run_study(study(2), 'warm', load=workloads.load_kind, workers={n})
    start = perf_counter()
    found = ss.run_study(study(250), 'rows', load=workloads.load_kind, workers={n})
    print(perf_counter() - start, sum(row['makespan_us'] for row in found.rows))
"""
        for n in (1, 2)
    },
}
pytestmark = pytest.mark.skipif(OTHER is None, reason="SIMSCHED_OTHER names no other checkout")


def ran(checkout, arguments, folder):
    """CPU seconds of a process that runs a checkout, and what it prints."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(checkout), "SIMSCHED_JIT": "O3"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, cwd=folder, env=environment, check=True)
    after = os.times()
    used = sum(after[2:4]) - sum(before[2:4])
    return used, done.stdout.decode()


def in_turns(arguments, folder):
    """What each turn of the two gives, after one that warms them up: pairs of this checkout and the other."""
    both = (Path(ss.__file__).parent.parent, OTHER)
    turns = [[ran(each, arguments, folder / f"{i}-{turn}") for i, each in enumerate(both)] for turn in range(TURNS + 1)]
    return turns[1:]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command, tmp_path, note):
    found = in_turns(["-c", "from simsched.cli import main; main()", *COMMANDS[command].split()], tmp_path)
    assert all("inception_v3" in text for pair in found for _, text in pair)
    ours, theirs = zip(*([used for used, _ in pair] for pair in found), strict=True)
    note(command=command, cpu_s=round(min(ours), 2), times_the_other=round(min(ours) / min(theirs), 2))


@pytest.mark.parametrize("piece", PIECES)
def test_pieces(piece, tmp_path, note):
    (tmp_path / "piece.py").write_text(START + PIECES[piece])
    found = in_turns([str(tmp_path / "piece.py")], tmp_path)
    ours, theirs = zip(*([list(map(float, text.split())) for _, text in pair] for pair in found), strict=True)
    assert len({makespan for _, makespan in ours}) == 1
    note(
        what=piece,
        ms=round(1e3 * min(ours)[0], 3),
        times_the_other=round(min(ours)[0] / min(theirs)[0], 2),
        pairs=[round(mine[0] / other[0], 2) for mine, other in zip(ours, theirs, strict=True)],
        same_answer=median(ours)[1] == median(theirs)[1],
    )
