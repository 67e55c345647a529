"""Mutated valid schedules offered to `Schedule.check`, and every answer held against the oracle's.

    python -m validation.mutants --count 100000 --seed 1 --log validation/mutants.json

Schedules of every scheduler, and some drawn at random for each execution, on random graphs of 3 to 40 operators and 1
to 4 devices, are changed in one to three places. `validation.schedule_oracle` decides of each mutant, by letting it
run, whether it breaks a dependency. Of those that are accepted one in `--every` is simulated. The status is 1 if
`check` accepts one that does, refuses one that does not, raises anything but our own errors, or if an accepted one,
simulated, starts an operator before its inputs are there.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from random import Random
from time import perf_counter
from typing import Any, Final

import networkx as nx

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.model.program import EXECUTIONS
from simsched.schedulers import SCHEDULERS, schedule
from simsched.schedulers.instance import sources
from validation.evidence import keep, options
from validation.schedule_oracle import fault
from workloads import load_kind

_ODD: Final = (-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31)


@dataclass
class Draft:
    """A schedule that may be wrong: the fields of `Schedule`, before any check."""

    graph: ss.OpGraph
    """Where operators and the sizes of known edges come from."""
    pairs: list[tuple[str, str]]
    placements: list[ss.Placement]
    execution: str

    @classmethod
    def of(cls, plan: ss.Schedule) -> "Draft":
        """Return a schedule as a draft."""
        pairs = [(edge.src, edge.dst) for edge in plan.graph.edges]
        return cls(plan.graph, pairs, list(plan.placements), plan.execution)

    def copy(self) -> "Draft":
        """Return a copy that can be changed."""
        return replace(self, pairs=list(self.pairs), placements=list(self.placements))

    @property
    def names(self) -> tuple[str, ...]:
        """The operators."""
        return tuple(self.graph.names)

    @property
    def fault(self) -> str | None:
        """The fault of the graph: a cycle."""
        return None if nx.is_directed_acyclic_graph(nx.DiGraph(self.pairs)) else "a cycle of dependencies"

    def schedule(self) -> ss.Schedule:
        """Make the schedule."""
        graph = self.graph
        known = [(edge.src, edge.dst) for edge in graph.edges]
        if known != self.pairs:
            edges = {(edge.src, edge.dst): edge for edge in graph.edges}
            graph = ss.OpGraph(graph.operators, [edges.get(pair, ss.Edge(*pair, nbytes=64.0)) for pair in self.pairs])
        return ss.Schedule(graph, self.placements, self.execution)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the log has it."""
        rows = [[p.op, p.device, p.stream, p.stage, p.group, p.priority] for p in self.placements]
        return {"operators": list(self.names), "edges": self.pairs, "placements": rows, "execution": self.execution}


def _two(draft: Draft, rng: Random) -> tuple[int, int]:
    n = len(draft.placements)
    return rng.randrange(n), rng.randrange(n)


def _set(draft: Draft, at: int, **values: Any) -> None:
    draft.placements[at] = replace(draft.placements[at], **values)


def _set_where(draft: Draft, which: Callable[[ss.Placement], bool], **values: Any) -> None:
    draft.placements = [replace(row, **values) if which(row) else row for row in draft.placements]


def swap_places(draft: Draft, rng: Random) -> None:
    """Exchange two rows of the launch order."""
    a, b = _two(draft, rng)
    rows = draft.placements
    rows[a], rows[b] = rows[b], rows[a]


def swap_neighbours(draft: Draft, rng: Random) -> None:
    """Exchange two rows that follow each other."""
    a = rng.randrange(len(draft.placements))
    rows = draft.placements
    rows[a - 1], rows[a] = rows[a], rows[a - 1]


def move(draft: Draft, rng: Random) -> None:
    """Launch an operator elsewhere in the order."""
    a, b = _two(draft, rng)
    draft.placements.insert(b, draft.placements.pop(a))


def turn_round(draft: Draft, rng: Random) -> None:
    """Launch a stretch of the order backwards."""
    a, b = sorted(_two(draft, rng))
    draft.placements[a:b] = draft.placements[a:b][::-1]


def by_device(draft: Draft, _rng: Random) -> None:
    """Launch one device after the other: fine where each has a host, and not in a captured graph."""
    draft.placements.sort(key=lambda row: row.device)


def exchange_operators(draft: Draft, rng: Random) -> None:
    """Let two operators trade places, streams and all."""
    a, b = _two(draft, rng)
    first = draft.placements[a]
    second = draft.placements[b]
    draft.placements[a] = replace(first, op=second.op)
    draft.placements[b] = replace(second, op=first.op)


def other_stream(draft: Draft, rng: Random) -> None:
    """Move an operator to another stream, its group with it or not."""
    at = rng.randrange(len(draft.placements))
    stream = rng.randrange(4)
    _set(draft, at, **({"stream": stream, "group": stream} if rng.random() < 0.5 else {"stream": stream}))


def other_group(draft: Draft, rng: Random) -> None:
    """Move an operator to another group."""
    _set(draft, rng.randrange(len(draft.placements)), group=rng.randrange(4))


def other_stage(draft: Draft, rng: Random) -> None:
    """Move an operator one stage on or back, or to the stage of another."""
    at, other = _two(draft, rng)
    stage = draft.placements[at].stage
    _set(draft, at, stage=rng.choice((stage + 1, max(0, stage - 1), draft.placements[other].stage)))


def later_stages(draft: Draft, rng: Random) -> None:
    """Begin a new stage in the middle of the launch order."""
    at = rng.randrange(len(draft.placements))
    draft.placements[at:] = [replace(row, stage=row.stage + 1) for row in draft.placements[at:]]


def merge_stages(draft: Draft, rng: Random) -> None:
    """Make one stage of two, on all devices or on one."""
    stage = rng.choice(draft.placements).stage
    only = rng.choice((None, rng.choice(draft.placements).device))
    _set_where(draft, lambda row: row.stage == stage + 1 and only in (None, row.device), stage=stage)


def one_stream_of_stage(draft: Draft, rng: Random) -> None:
    """Put a stage on one stream: barriers beside it may be left out."""
    one = rng.choice(draft.placements)
    _set_where(draft, lambda row: (row.device, row.stage) == (one.device, one.stage), stream=0, group=0)


def other_device(draft: Draft, rng: Random) -> None:
    """Move an operator to another device, now and then one that there is not."""
    device = f"gpu{rng.randrange(4)}" if rng.random() < 0.9 else rng.choice(("gpu9", "", "host"))
    _set(draft, rng.randrange(len(draft.placements)), device=device)


def merge_devices(draft: Draft, rng: Random) -> None:
    """Move all of a device to another."""
    a, b = (draft.placements[i].device for i in _two(draft, rng))
    _set_where(draft, lambda row: row.device == a, device=b)


def split_device(draft: Draft, rng: Random) -> None:
    """Move a random half of a device to another."""
    device = rng.choice(draft.placements).device
    to = f"gpu{rng.randrange(4)}"
    _set_where(draft, lambda row: row.device == device and rng.random() < 0.5, device=to)


def one_stream(draft: Draft, _rng: Random) -> None:
    """Put everything on stream 0, groups too."""
    _set_where(draft, lambda _: True, stream=0, group=0)


def own_streams(draft: Draft, _rng: Random) -> None:
    """Give every operator a stream of its own."""
    draft.placements = [replace(row, stream=i, group=i) for i, row in enumerate(draft.placements)]


def priority(draft: Draft, rng: Random) -> None:
    """Change a priority, which breaks nothing unless it is no such number."""
    _set(draft, rng.randrange(len(draft.placements)), priority=rng.choice((-(2**31) + 1, -3, *_ODD)))


def odd_number(draft: Draft, rng: Random) -> None:
    """Put a number anywhere: negative, huge, or one too large for 32 bits."""
    key = rng.choice(("stream", "stage", "group"))
    _set(draft, rng.randrange(len(draft.placements)), **{key: rng.choice(_ODD)})


def duplicate(draft: Draft, rng: Random) -> None:
    """Place an operator twice."""
    a, b = _two(draft, rng)
    draft.placements.insert(b, draft.placements[a])


def drop(draft: Draft, rng: Random) -> None:
    """Leave an operator out."""
    if len(draft.placements) > 1:
        del draft.placements[rng.randrange(len(draft.placements))]


def rename(draft: Draft, rng: Random) -> None:
    """Place another operator instead, or one that there is not."""
    a, b = _two(draft, rng)
    _set(draft, a, op=draft.placements[b].op if rng.random() < 0.5 else "nobody")


def other_execution(draft: Draft, rng: Random) -> None:
    """Run it another way."""
    draft.execution = rng.choice(EXECUTIONS)


def add_edge(draft: Draft, rng: Random) -> None:
    """Let an operator read from another: mostly from one launched before."""
    a, b = sorted(_two(draft, rng))
    if a != b:
        pair = draft.placements[a].op, draft.placements[b].op
        if rng.random() < 0.2:
            pair = pair[::-1]
        if pair[0] != pair[1] and pair not in draft.pairs and {*pair} <= {*draft.names}:
            draft.pairs.append(pair)


def turn_edge(draft: Draft, rng: Random) -> None:
    """Let a producer read from its consumer."""
    if draft.pairs:
        at = rng.randrange(len(draft.pairs))
        src, dst = draft.pairs[at]
        if (dst, src) not in draft.pairs:
            draft.pairs[at] = dst, src


def drop_edge(draft: Draft, rng: Random) -> None:
    """Take a dependency away."""
    if draft.pairs:
        del draft.pairs[rng.randrange(len(draft.pairs))]


MUTATIONS: Final = {
    one.__name__: one
    for one in (
        swap_places,
        swap_neighbours,
        move,
        turn_round,
        by_device,
        exchange_operators,
        other_stream,
        other_group,
        other_stage,
        later_stages,
        merge_stages,
        one_stream_of_stage,
        other_device,
        merge_devices,
        split_device,
        one_stream,
        own_streams,
        priority,
        odd_number,
        duplicate,
        drop,
        rename,
        other_execution,
        add_edge,
        turn_edge,
        drop_edge,
    )
}
"""Every change, by its name."""


PER_SCHEDULE: Final = 60
"""Mutants of a schedule."""
_MOST_KEPT: Final = 20  # failures that are logged in full
_TIE: Final = 1e-9
_FAMILIES: Final = (
    "layered n_ops=8:40 n_layers=3:8",
    "erdos-renyi n_ops=4:40",
    "watts-strogatz n_ops=8:40",
    "fork-join n_ops=4:40",
    "series-parallel n_ops=4:40",
    "in-tree n_ops=3:40",
    "out-tree n_ops=3:40",
    "wavefront rows=2:6 columns=2:6",
    "cholesky tiles=2:5",
    "lu tiles=2:4",
    "fft points=4:4",
    "fft points=8:8",
    "inception-like n_blocks=1:3",
    "transformer-like n_layers=1:1 heads=1:4",
)
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
    """The outcomes of the mutants."""

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
    rng = Random(seed)
    tally = Tally()
    start = perf_counter()
    for maker in cycle(makers):
        cluster = ss.Cluster.preset(rng.choice(("a100", "v100", "h100")), rng.randint(1, 4))
        plan = _plan(maker, cluster, rng)
        original = Draft.of(plan)
        offer(original, "none", cluster, tally)  # a schedule as it was made is to be accepted
        tally.schedules[maker] += 1
        for _ in range(PER_SCHEDULE):
            mutant = original.copy()
            name = ""
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
    refusal = ""
    plan = None
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
    """Simulate an accepted mutant, and check that every consumer has its inputs.

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
    """A consumer that started before its inputs were there."""


def look(trace: ss.Trace, plan: ss.Schedule) -> int:
    """Prove of a trace that every operator starts when its inputs have ended, and have come to its device.

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
    read = {name: [graph.names[i] for i in row] for name, row in zip(graph.names, sources(graph), strict=True)}
    order = _random_order(read, rng)
    n_streams = rng.randint(1, 4)
    if execution != "stages":
        rows = [
            ss.Placement(op, rng.choice(names), rng.randrange(n_streams), priority=-rng.randrange(2)) for op in order
        ]
        return ss.Schedule(graph, rows, execution)
    rows = []
    cut = 0
    chain: dict[str, ss.Placement] = {}  # the operators of the present stage
    for op in order:
        beside = [chain[src] for src in read[op] if src in chain]
        if rng.random() < 0.15 or len({(row.device, row.group) for row in beside}) > 1:
            cut = cut + 1
            chain = {}
            beside = []
        where = rng.choice(names)
        group = rng.randrange(n_streams)
        if beside:  # with its producer, or else in the next stage
            where = beside[0].device
            group = beside[0].group
        chain[op] = ss.Placement(op, where, group, cut, group)
        rows.append(chain[op])
    return ss.Schedule(graph, rows, "stages")


def _random_order(read: dict[str, list[str]], rng: Random) -> list[str]:
    """Return the operators in a topological order, any as likely to be next as another."""
    order: dict[str, None] = {}
    while len(order) < len(read):
        ready = [name for name in read if name not in order and all(src in order for src in read[name])]
        order[rng.choice(ready)] = None
    return list(order)


def main(arguments: Sequence[str] | None = None) -> int:
    """Offer mutants; return the status of the process."""
    given = options(__doc__, arguments, count=1000, seed=0, every=20, log=None)
    tally = run(given.count, given.seed, given.every)
    print(
        f"{tally.mutants:,} mutants of {sum(tally.schedules.values()):,} schedules in {tally.seconds:.1f} s: "
        f"{tally.accepted:,} accepted, {tally.refused:,} refused, {tally.simulated:,} simulated"
    )
    for what, count in sorted(tally.failures.items()):
        print(f"  {count:,} {what}")
    for example in tally.examples:
        print(f"  {example['what']}: {example['detail']}")
    if given.log:
        keep(given.log, {"seed": given.seed, **tally.to_dict()})
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
