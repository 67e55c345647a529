"""Mutated valid schedules offered to `Schedule.check`, and every answer held against the oracle's.

    python -m validation.mutants --count 100000 --seed 1 --log validation/mutants.json

Schedules of every scheduler, and some drawn at random for each execution, on random graphs of 3 to 40 operators and 1
to 4 devices, are changed in one to three places. `validation.schedule_oracle` decides of each mutant, by letting it
run, whether it breaks a dependency. The status is 1 if `check` accepts one that does, refuses one that does not, raises
anything but our own errors, or if an accepted one, simulated, starts an operator before what it reads is there.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from time import perf_counter
from typing import Any, Final

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.model.program import EXECUTIONS
from simsched.schedulers import SCHEDULERS, schedule
from validation.evidence import keep
from validation.mutations import MUTATIONS, Draft
from validation.schedule_oracle import fault
from workloads import load_kind

PER_SCHEDULE: Final = 60
"""Mutants of a schedule."""
_MOST_KEPT: Final = 20  # failures that are logged in full
_TIE: Final = 1e-9
_FAMILIES: Final = (
    "layered n_ops=8:40 n_layers=3:8", "erdos-renyi n_ops=4:40", "watts-strogatz n_ops=8:40", "fork-join n_ops=4:40",
    "series-parallel n_ops=4:40", "in-tree n_ops=3:40", "out-tree n_ops=3:40", "wavefront rows=2:6 columns=2:6",
    "cholesky tiles=2:5", "lu tiles=2:4", "fft points=4:4", "fft points=8:8", "inception-like n_blocks=1:3",
    "transformer-like n_layers=1:1 heads=1:4",
)  # fmt: skip
_SLOW: Final = {"ios": 14, "autograph": 24, "search": 24}  # operators up to which a scheduler answers in moments
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "search": {"evaluations": 20, "starts": ("sequential", "lios")},
    "autograph": {"rules": ()},  # graphs of random families have no shapes to rewrite by
}
DRAWN: Final = tuple(f"drawn-{execution}" for execution in EXECUTIONS)
"""Schedules that no scheduler made."""
_MOST_STREAMS: Final = 2**31 - 10_000  # streams of copies come behind, which the lowering refuses beyond 2^31


@dataclass
class Tally:
    """What became of the mutants."""

    mutants: int = 0
    accepted: int = 0
    refused: int = 0
    simulated: int = 0
    edges_seen: int = 0
    copies_seen: int = 0
    seconds: float = 0.0
    schedules: Counter[str] = field(default_factory=Counter)
    executions: Counter[str] = field(default_factory=Counter)
    accepted_by_mutation: Counter[str] = field(default_factory=Counter)
    refused_by_mutation: Counter[str] = field(default_factory=Counter)
    oracle: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, what: str, detail: str, mutant: Draft) -> None:
        """Count a failure; keep the first of them in full."""
        self.failures[what] += 1
        if len(self.examples) < _MOST_KEPT:
            self.examples.append({"what": what, "detail": detail[:500], "mutant": mutant.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        """Return it as the log has it."""
        counted = {key: dict(sorted(value.items())) for key, value in vars(self).items() if isinstance(value, Counter)}
        return vars(self) | counted | {"seconds": round(self.seconds, 1)}


def run(count: int, seed: int, every: int = 20, makers: Sequence[str] = (*SCHEDULERS, *DRAWN)) -> Tally:
    """Offer mutants to `check`.

    Parameters
    ----------
    count
        How many; one that equals the schedule it was made of is not counted.
    seed
        Equal seeds make equal mutants.
    every
        Of the accepted, one in so many is simulated.
    makers
        Whose schedules are mutated, in turn: names of schedulers, or of `DRAWN`.
    """
    rng, tally = Random(seed), Tally()
    start = perf_counter()
    for maker in cycle(makers):
        cluster = ss.Cluster.preset(rng.choice(("a100", "v100", "h100")), rng.randint(1, 4))
        plan = _plan(maker, cluster, rng)
        original = Draft.of(plan)
        offer(original, "none", cluster, tally)  # a schedule as it was made is to be accepted
        tally.schedules[maker] += 1
        for _ in range(PER_SCHEDULE):
            mutant, name = original.copy(), ""
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                name = rng.choice(tuple(MUTATIONS))
                MUTATIONS[name](mutant, rng)
            if mutant == original:
                continue
            tally.mutants += 1
            accepted = offer(mutant, name, cluster, tally)
            if accepted is not None and tally.accepted % every == 0 and accepted.stream.max() < _MOST_STREAMS:
                simulate(accepted, mutant, cluster, rng, tally)
            if tally.mutants >= count:
                tally.seconds = perf_counter() - start
                return tally
    raise AssertionError("a cycle has no end")


def offer(mutant: Draft, name: str, cluster: ss.Cluster, tally: Tally) -> ss.Schedule | None:
    """Offer a mutant to `check` and hold the answer against the oracle's; return it if both accept it."""
    devices = [device.name for device in cluster.devices]
    wrong = mutant.fault or fault(mutant.names, mutant.pairs, mutant.placements, mutant.execution, devices)
    refusal, plan = "", None
    try:
        plan = mutant.schedule().check(cluster)
    except SimschedError as error:
        refusal = f"{type(error).__name__}: {error}"
    except Exception as error:
        tally.fail(f"raised {type(error).__name__}", str(error), mutant)
        return None
    if name != "none":
        tally.executions[mutant.execution] += 1
        tally.accepted += plan is not None
        tally.refused += plan is None
        (tally.refused_by_mutation if plan is None else tally.accepted_by_mutation)[name] += 1
        tally.oracle[wrong or "runs"] += 1
    if plan is not None and wrong is not None:
        tally.fail("accepted, though it breaks a dependency or never ends", wrong, mutant)
        return None
    if plan is None and wrong is None:
        tally.fail("refused, though it runs", refusal, mutant)
    return plan


def simulate(plan: ss.Schedule, mutant: Draft, cluster: ss.Cluster, rng: Random, tally: Tally) -> None:
    """Simulate an accepted mutant, and look whether every consumer finds what it reads.

    Jitter, the way to lower it and the number of hardware queues are drawn: none of them may break anything.
    """
    tally.simulated += 1
    place = {row.op: at for at, row in enumerate(plan.placements)}
    forwards = all(place[src] < place[dst] for src, dst in mutant.pairs)  # else no single thread can launch it
    threads = rng.choice(("device", "one")) if forwards else "device"
    transfers = rng.choice(("async", "blocking")) if plan.execution != "graph" else "async"
    cluster = cluster.replace_devices(connections=rng.choice((1, 2, 32)))
    try:
        program = plan.lower(cluster, threads=threads, transfers=transfers, events=rng.choice(("minimal", "literal")))
        trace = ss.simulate(program, cluster, jitter=rng.choice((None, 0.5, 2.0)), rng=rng.randrange(1 << 30))
        tally.copies_seen += look(trace, plan)
    except (SimschedError, BrokenEdgeError) as error:
        tally.fail(f"simulated: {type(error).__name__}", str(error), mutant)
    tally.edges_seen += len(mutant.pairs)


class BrokenEdgeError(Exception):
    """A consumer that started before what it reads was there."""


def look(trace: ss.Trace, plan: ss.Schedule) -> int:
    """Prove of a trace that every operator starts when what it reads has ended, and has come to its device.

    Returns
    -------
    int
        Dependencies between devices, of each of which a copy was found in between.

    Raises
    ------
    BrokenEdgeError
        Naming the dependency.
    """
    when = trace.operator_times()
    device = {row.op: row.device for row in plan.placements}
    copies: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for span in trace.spans:
        if span.kind == "copy":
            src, _, to = span.name.rpartition(" -> ")
            copies.setdefault((src, to), []).append((span.start, span.end))
    tie = _TIE * (1.0 + trace.makespan)
    found = 0
    for edge in plan.graph.edges:
        ready = when[edge.src][1]
        if device[edge.src] != device[edge.dst]:
            found += 1
            ends = [b for a, b in copies.get((edge.src, device[edge.dst]), []) if a >= ready - tie]
            if not ends:
                raise BrokenEdgeError(f"{edge.src} -> {edge.dst}: no copy after {ready} us")
            ready = min(ends)
        if not ready <= when[edge.dst][0] + tie:
            raise BrokenEdgeError(f"{edge.src} -> {edge.dst}: starts at {when[edge.dst][0]} us, ready at {ready} us")
    return found


def _plan(maker: str, cluster: ss.Cluster, rng: Random) -> ss.Schedule:
    """Return a schedule of a scheduler, or one drawn, of a random graph."""
    most = _SLOW.get(maker, 40)
    graph = None
    while graph is None or not 3 <= len(graph) <= most:
        family, *ranges = rng.choice(_FAMILIES).split()
        bounds = {name: map(int, span.split(":")) for name, _, span in (one.partition("=") for one in ranges)}
        sizes = {name: rng.randint(low, min(high, max(most, low))) for name, (low, high) in bounds.items()}
        if "n_layers" in sizes and "n_ops" in sizes:
            sizes["n_layers"] = min(sizes["n_layers"], sizes["n_ops"])
        graph = load_kind(family, **sizes, seed=rng.randrange(1 << 30))
    if maker in DRAWN:
        return draw(graph, cluster, maker.removeprefix("drawn-"), rng)
    return schedule(graph, cluster, maker, **_OPTIONS.get(maker, {}))


def draw(graph: ss.OpGraph, cluster: ss.Cluster, execution: str, rng: Random) -> ss.Schedule:
    """Return a valid schedule with operators anywhere; in stages, a random number of levels share one."""
    names = [device.name for device in cluster.devices]
    read = _read_by(graph)
    order = _random_order(read, rng)
    n_streams = rng.randint(1, 4)
    if execution != "stages":
        rows = [
            ss.Placement(op, rng.choice(names), rng.randrange(n_streams), priority=-rng.randrange(2)) for op in order
        ]
        return ss.Schedule(graph, rows, execution)
    rows, cut = [], 0
    chain: dict[str, ss.Placement] = {}  # the operators of the present stage
    for op in order:
        beside = [chain[src] for src in read[op] if src in chain]
        if rng.random() < 0.15 or len({(row.device, row.group) for row in beside}) > 1:
            cut, chain, beside = cut + 1, {}, []
        where = rng.choice(names)
        group = rng.randrange(n_streams)
        if beside:  # with what it reads from, or else in the next stage
            where, group = beside[0].device, beside[0].group
        chain[op] = ss.Placement(op, where, group, cut, group)
        rows.append(chain[op])
    return ss.Schedule(graph, rows, "stages")


def _read_by(graph: ss.OpGraph) -> dict[str, list[str]]:
    """Return the producers of each operator."""
    found: dict[str, list[str]] = {name: [] for name in graph.names}
    for edge in graph.edges:
        found[edge.dst].append(edge.src)
    return found


def _random_order(read: dict[str, list[str]], rng: Random) -> list[str]:
    """Return the operators in a topological order, any as likely to be next as another."""
    order: dict[str, None] = {}
    while len(order) < len(read):
        ready = [name for name in read if name not in order and all(src in order for src in read[name])]
        order[rng.choice(ready)] = None
    return list(order)


def main(arguments: Sequence[str] | None = None) -> int:
    """Offer mutants; return the status of the process."""
    parser = argparse.ArgumentParser(description="Offer mutated schedules to check().")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=20, help="of the accepted, one in so many is simulated")
    parser.add_argument("--log", help="JSON file for what was found")
    options = parser.parse_args(arguments)
    tally = run(options.count, options.seed, options.every)
    print(f"{tally.mutants:,} mutants of {sum(tally.schedules.values()):,} schedules in {tally.seconds:.1f} s: "
          f"{tally.accepted:,} accepted, {tally.refused:,} refused, {tally.simulated:,} simulated")  # fmt: skip
    for what, count in sorted(tally.failures.items()):
        print(f"  {count:,} {what}")
    for example in tally.examples:
        print(f"  {example['what']}: {example['detail']}")
    if options.log:
        keep(options.log, {"seed": options.seed, **tally.to_dict()})
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
