"""Speed of studies: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_studies_speed.py -s``.

HIOS's default DAGs, 200 operators on four A40, with the schedulers of its figures, but LIOS in the place of IOS, whose
search of a second and more would be all that is measured. Targets: from one process to two 90 % of twice as many rows a
second, where the machine allows it, and 5 % of the work for the layer of studies.
"""

from functools import partial
from multiprocessing import get_context
from time import perf_counter, process_time

import simsched as ss
import workloads
from simsched.experiments.comparison import row_of
from simsched.experiments.evaluate import Yardstick, evaluate
from simsched.experiments.study.grid import rows_of, seed_of

SCHEDULERS = ("sequential", "lios", "inter-lp", "hios-lp", "inter-mr", "hios-mr")


def hios(instances):
    """As many DAGs with six schedulers each."""
    return ss.Study("speed", SCHEDULERS, {"kind": "layered"}, {"gpu": "a40", "gpus": 4}, seeds=instances)


def by_hand(study, instances):
    """The rows of some instances as a script makes them, which writes nothing down: seconds of wall and of CPU."""
    begun, cpu = perf_counter(), process_time()
    rows = []
    for instance in instances:
        graph = workloads.random_layered(rng=seed_of(study.seed, instance, 0))
        cluster = ss.Cluster.preset("a40", 4)
        yardstick, baseline = Yardstick(graph, cluster), None
        for name in SCHEDULERS:
            found = evaluate(graph, cluster, scheduler=name, bound=yardstick.bound)
            baseline = found.trace.makespan if baseline is None else baseline
            rows.append(row_of(name, found, baseline))
    return perf_counter() - begun, process_time() - cpu, [row.makespan_us for row in rows]


def _waiting(start, study, instances, results):
    by_hand(study, instances[:1])  # machine code is loaded
    start.wait()
    results.put(by_hand(study, instances)[0])


def plainly(study, n):
    """Wall time of the same work in n processes that know nothing of each other: what the machine can do."""
    context = get_context("forkserver")
    start, results = context.Barrier(n), context.Queue()
    parts = [study.instances[i::n] for i in range(n)]
    crew = [context.Process(target=_waiting, args=(start, study, part, results)) for part in parts]
    for process in crew:
        process.start()
    seconds = max(results.get() for _ in crew)
    for process in crew:
        process.join()
    return seconds


def run(study, folder, **how):
    """Wall time and makespans of a study, from its first row on: without the start of processes."""
    begun = []
    found = ss.run_study(
        study, folder, load=workloads.load_kind, progress=lambda *_: begun.append(perf_counter()), **how
    )
    return found, begun


def test_rows_per_second(benchmark, tmp_path):
    """1,002 rows in this process, in one and in two others, and as a script makes them."""
    study = hios(167)
    by_hand(study, study.instances[:2])
    wall, cpu, makespans = by_hand(study, study.instances)
    figures = {"by_hand_rows_s": len(study) / wall}
    for name, how in {
        "serial": {"executor": "serial"}, "processes_1": {"workers": 1}, "processes_2": {"workers": 2},
    }.items():  # fmt: skip
        run(hios(2), tmp_path / f"warm-{name}", **how)  # the server that makes processes is there
        start, used = perf_counter(), process_time()
        found, _ = run(study, tmp_path / name, **how)
        figures[f"{name}_rows_s"] = len(study) / (perf_counter() - start)
        if name == "serial":
            figures["overhead_cpu"] = (process_time() - used) / cpu - 1
        assert [row["makespan_us"] for row in found.rows] == makespans
    figures["scaling"] = figures["processes_2_rows_s"] / figures["processes_1_rows_s"] / 2
    figures["scaling_of_the_machine"] = plainly(study, 1) / plainly(study, 2) / 2
    benchmark.extra_info.update({name: round(value, 3) for name, value in figures.items()})
    print(", ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    again = benchmark.pedantic(partial(run, study, tmp_path / "serial", executor="serial"), rounds=1)
    assert len(rows_of(study)) == len(again[0].rows) == len(study)
