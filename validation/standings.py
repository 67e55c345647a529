"""Winners by case: every scheduler on random DAGs and on four networks, and the gain of `search` over the best other.

    python -m validation.standings [--dags 30] [--evaluations 10000] [--workers 2] [--log validation/standings.json]

The DAGs are HIOS's (200 operators in 14 layers, 400 edges, transfers of 0.8 of an operator) on four A40; the networks
are those of IOS on one and two A100. Each case is written to the log as soon as it is done; a case that is there
already is not run again. Then the tables are printed.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from functools import partial
from math import nan
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter
from typing import Any, Final

import simsched as ss
import workloads
from simsched.base.errors import SchedulerError
from simsched.base.io import dump_json, read_json, write_file
from simsched.schedulers import SCHEDULERS, takes
from validation.evidence import options, processes, table

NETWORKS: Final = ("inception_v3", "randwire", "nasnet_a_large", "squeezenet")
BY_STAGES: Final = ("ios", "inter-lp", "hios-lp", "inter-mr", "hios-mr")
"""Schedulers whose stages the formula of HIOS's simulated figures can value."""


def cases(n_dags: int) -> tuple[str, ...]:
    """Return the names of all cases: a workload and a cluster each."""
    dags = (f"random:layered,seed={seed} on 4 a40" for seed in range(n_dags))
    return (*dags, *(f"{name} on {n} a100" for name in NETWORKS for n in (1, 2)))


def run(case: str, evaluations: int) -> dict[str, Any]:
    """Return every scheduler's result for a case: makespan and estimate in us, wall time in s, or its refusal."""
    spec, _, where = case.partition(" on ")
    n, gpu = where.split()
    graph, cluster = workloads.from_spec(spec), ss.Cluster.preset(gpu, int(n))
    found: dict[str, dict[str, Any]] = {}
    others: list[ss.Schedule] = []
    for name in SCHEDULERS:
        options: dict[str, Any] = {"evaluations": evaluations, "starts": others} if name == "search" else {}
        start = perf_counter()
        try:
            plan = ss.schedule(graph, cluster, name, **options)
        except SchedulerError as error:
            found[name] = {"refused": str(error)}
            continue
        seconds = perf_counter() - start
        others.append(plan)
        makespan = ss.simulate(plan, cluster).makespan
        found[name] = {"makespan": makespan, "estimate": plan.estimate, "search_s": round(seconds, 3)}
        if name in BY_STAGES and spec.startswith("random:"):
            by_formula: dict[str, Any] = {"stage_latency": "hios-sim"} if takes(name, "stage_latency") else {}
            found[name]["hios-sim"] = ss.schedule(graph, cluster, name, **by_formula).estimate
    return found


def speedups(rows: Iterable[dict[str, Any]], name: str, key: str = "makespan") -> list[float]:
    """Return by how much a scheduler beats one operator after the other, case by case, where it has a schedule."""
    return [row["sequential"]["makespan"] / row[name][key] for row in rows if key in row.get(name, {})]


def gain(row: dict[str, Any]) -> float:
    """Return by how much of the best other makespan `search` is shorter."""
    others = [found["makespan"] for name, found in row.items() if name != "search" and "makespan" in found]
    return float(1.0 - row["search"]["makespan"] / min(others))


def tables(done: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables, in Markdown."""
    dags = [row for case, row in done.items() if case.startswith("random:")]
    networks = {case: row for case, row in done.items() if not case.startswith("random:")}
    best = [min(found["makespan"] for found in row.values() if "makespan" in found) for row in dags]
    rows = []
    for name in SCHEDULERS:
        values = speedups(dags, name)
        cell = f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else "-"
        won = sum(row[name].get("makespan", 0.0) == least for row, least in zip(dags, best, strict=True) if name in row)
        ratios = [f"{(speedups([row], name) or [nan])[0]:.2f}".replace("nan", "-") for row in networks.values()]
        rows.append((name, cell, won, *ratios))
    yield from table(("scheduler", f"{len(dags)} DAGs on 4 a40", "won", *networks), rows)
    gains = {case: 100 * gain(row) for case, row in done.items()}
    of_dags = [gains[case] for case in done if case not in networks]
    yield (
        f"\nsearch beats the best of the others in {sum(g > 0 for g in gains.values())} of {len(gains)} cases, by "
        f"{mean(gains.values()):.2f} % on average\n(DAGs: {sum(g > 0 for g in of_dags)} of {len(of_dags)}, "
        f"{mean(of_dags):.2f} %;\nnetworks: {', '.join(f'{case} {gains[case]:.2f} %' for case in networks)})."
    )
    by_formula = ", ".join(f"{name} {mean(speedups(dags, name, 'hios-sim')):.2f}x" for name in BY_STAGES)
    yield f'\nUnder `stage_latency="hios-sim"`, by their own estimate: {by_formula}'


def main() -> None:
    """Run the command line."""
    given = options(__doc__, dags=30, evaluations=10_000, workers=2, log="validation/standings.json")
    log = Path(given.log)
    kept: dict[str, Any] = read_json(str(log))["cases"] if log.exists() else {}
    asked = cases(given.dags)
    missing = [case for case in asked if case not in kept]
    with processes(given.workers) as pool:
        running = {pool.submit(partial(run, case, given.evaluations)): case for case in missing}
        for future in as_completed(running):
            kept[running[future]] = future.result()
            ordered = {case: kept[case] for case in asked if case in kept}
            write_file(str(log), dump_json({"evaluations": given.evaluations, "cases": ordered}))
            print(f"{running[future]}: done", flush=True)
    print(*tables({case: kept[case] for case in asked}), sep="\n")


if __name__ == "__main__":
    main()
