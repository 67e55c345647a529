"""Trials: each overlap of a graph, simulated in every way in which it can be launched."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.experiments.baselines import EAGER, eagerly
from simsched.experiments.overlap.candidates import Branch, branches, shorten_name
from simsched.experiments.overlap.plans import Side, beside, by_turns, exchanging
from simsched.experiments.overlap.prefetch import beside_collectives, prefetching
from simsched.experiments.overlap.results import HALVES, PREFETCH, TOGETHER
from simsched.experiments.ranges import Errors, Ranged, ranges
from simsched.experiments.result import Doubt
from simsched.model import CostModel, OpGraph, Partition, Program, Schedule
from simsched.model.costmodel import Target, bare, bind, operator_times, with_cluster
from simsched.schedulers import schedule
from simsched.simulator import simulate

EXECUTIONS: Final = ("graph", "events", EAGER)
"""Ways to launch the operators: captured as a CUDA graph, by a lean host, or by PyTorch's host, one by one."""
ERRORS: Final = Errors(own=0.01, common=0.2, gain=0.5, shortfall=0.2)
"""Errors of the model where the same kernels run in both cases: chosen, not fitted."""
MOST_TRIED: Final = 100
"""Branches that are simulated."""
_PARTS: Final = 16
"""Parts of a device's SMs that a stream may have."""
_ADDS: Final = 1e-4
"""Part of the time by which one more overlap has to be faster."""
Load = Callable[..., OpGraph]
"""Makes a graph for parameters of the workload."""


@dataclass(frozen=True, slots=True)
class Trial:
    """An overlap that was simulated.

    Parameters
    ----------
    name, beside, places, launched
        As in `Overlap`.
    plan
        The schedule.
    time
        Its makespan in us.
    side
        The branch; None of half-batches and prefetches, which are another graph.
    """

    name: str
    beside: str
    places: int
    launched: str
    plan: Schedule
    time: float
    side: Side | None = None


class TrialBench:
    """A graph on a cluster, of which overlaps are simulated.

    Parameters
    ----------
    graph, target, cost
        As in `simulate`; the first device runs everything.
    execution
        One of `EXECUTIONS`.
    """

    def __init__(self, graph: OpGraph, target: Target, cost: CostModel | None, execution: str) -> None:
        self.graph, _ = bind(graph, target)
        self.target = target
        self.cost = cost
        self.is_eager = execution == EAGER
        if self.is_eager:
            self.execution = "events"
        else:
            self.execution = execution
        self.device = bare(target).devices[0].name
        self.base = schedule(self.graph, target, "sequential", cost).like(execution=self.execution)
        self.base_time = self.time(self.base)
        self.untried = 0
        self.untried_us = 0.0

    def time(self, plan: Schedule) -> float:
        """Return the makespan of a schedule in us."""
        return simulate(self.program(plan), self.target, self.cost).makespan

    def time_apart(self, plan: Schedule) -> float:
        """Return the makespan of a schedule in us if kernels did not contend."""
        cluster = bare(self.target).replace_devices(contention=False)
        return simulate(self.program(plan), with_cluster(self.target, cluster), self.cost).makespan

    def time_free(self, plan: Schedule) -> float:
        """Return the makespan of a schedule in us if kernels did not contend, and launches and waits took no time."""
        cluster = bare(self.target).replace_devices(contention=False).without_overheads()
        return simulate(plan, with_cluster(self.target, cluster), self.cost).makespan

    def program(self, plan: Schedule) -> Program:
        """Return a lowered schedule, whose host takes as long as PyTorch's if it launches operator by operator."""
        program = plan.lower(bare(self.target))
        if self.is_eager:
            return eagerly(program)
        return program

    def on(self, graph: OpGraph) -> "TrialBench":
        """Return the bench of another graph, launched in the same way."""
        return TrialBench(graph, self.target, self.cost, EAGER if self.is_eager else self.execution)

    def quickest(self, plans: Mapping[str, Schedule]) -> tuple[str, Schedule, float]:
        """Return the quickest of some schedules with its name and its makespan; of equal ones the first."""
        times = {name: self.time(plan) for name, plan in plans.items()}
        name = min(times, key=times.__getitem__)
        return name, plans[name], times[name]

    def trials(self, halves: OpGraph | None) -> list[Trial]:
        """Return the trials of branches, prefetches, and half-batches if their graph is given, by rising time.

        Trials of equal times keep the order of the graph. Of more than `MOST_TRIED` branches those are simulated that
        could save most: `untried` is the number of others, and `untried_us` the most that one of them saves.
        """
        results = [self._of_branch(branch) for branch in self._promising()]
        if halves is not None:
            results.append(self.on(halves)._of_halves())
        prefetches = prefetching(self.graph, self.target, self.cost)
        if prefetches is not None:
            plan = beside_collectives(prefetches, self.device, self.execution)
            places = len(prefetches) - len(self.graph)
            results.append(Trial(PREFETCH, "collectives", places, "first", plan, self.time(plan)))
        return sorted(results, key=lambda trial: trial.time)

    def _promising(self) -> list[Branch]:
        """Return the branches that could save most time: no more than they take, and than their rivals take."""
        candidates = branches(self.graph)
        if len(candidates) <= MOST_TRIED:
            return candidates
        times = operator_times(self.graph, bare(self.target).devices[0], self.cost)
        bounds = [float(min(times[[*one.operators]].sum(), times[[*one.rivals]].sum())) for one in candidates]
        order = sorted(range(len(candidates)), key=lambda i: (-bounds[i], i))
        self.untried = len(candidates) - MOST_TRIED
        self.untried_us = bounds[order[MOST_TRIED]]
        return [candidates[i] for i in sorted(order[:MOST_TRIED])]

    def _of_branch(self, branch: Branch) -> Trial:
        plans = {
            name: beside(self.graph, self.device, [Side(branch, name == "first")], self.execution)
            for name in ("last", "first")
        }
        launched, plan, time = self.quickest(plans)
        side = Side(branch, launched == "first")
        return Trial(branch.name, shorten_name(branch.beside), len(branch.places), launched, plan, time, side)

    def _of_halves(self) -> Trial:
        plans = {"apart": by_turns(self.graph, self.device, self.execution, apart=True)}
        if any(exchanging(self.graph)):
            plans["collectives apart"] = by_turns(self.graph, self.device, self.execution, apart=False)
        launched, plan, time = self.quickest(plans)
        return Trial(HALVES, "each other", 1, launched, plan, time)

    def together(self, trials: Iterable[Trial]) -> Trial | None:
        """Return all branches that make the step faster after those that gain more; None if there are not two."""
        best: Trial | None = None
        members: list[Trial] = []
        for trial in trials:
            if trial.side is None:
                continue
            if best is None:
                best = trial
                members = [trial]
                continue
            sides = [one.side for one in (*members, trial) if one.side is not None]
            plan = beside(self.graph, self.device, sides, self.execution)
            time = self.time(plan)
            if time < best.time * (1 - _ADDS):
                members.append(trial)
                names = shorten_name([one.name for one in members])
                best = Trial(TOGETHER, names, sum(one.places for one in members), "as above", plan, time)
        return best if len(members) > 1 else None

    def find_division(self, trial: Trial) -> tuple[Partition, Partition | None, Schedule, float]:
        """Return the division of SMs with which an overlap is fastest; it may be slower than without one.

        Returns
        -------
        tuple
            The SMs of the side stream, those of the first one (None for all), the schedule and its makespan in us. Of
            equal ones that with the fewest SMs for the side.

        Notes
        -----
        Sixteenths of the device are tried for the side stream, each beside all SMs and beside the others.
        """
        sms = bare(self.target).devices[0].sms
        divisions: list[tuple[Partition, Partition | None, Schedule, float]] = []
        for part in sorted({max(1, sms * k // _PARTS) for k in range(1, _PARTS)}):
            side = Partition(self.device, 1, part)
            if part < sms:
                others = Partition(self.device, 0, sms - part)
            else:
                others = None
            for main in dict.fromkeys((None, others)):
                plan = trial.plan.like(partitions=(side,) if main is None else (main, side))
                divisions.append((side, main, plan, self.time(plan)))
        return min(divisions, key=lambda division: division[-1])

    def ranges(self, trials: Iterable[Trial]) -> tuple[dict[str, Ranged], Doubt | None]:
        """Return the 90 % ranges of the speedups over one stream, by name, and their sources."""
        programs = {trial.name: self.program(trial.plan) for trial in trials}
        if not programs:
            return {}, None
        return ranges(programs, self.target, self.cost, reference=self.program(self.base), errors=ERRORS)


def halves_of(halves: Load | None, parameters: Mapping[str, Any]) -> OpGraph | None:
    """Return the graph of two halves of a batch; None where nothing makes it, or the batch is too small."""
    if halves is None:
        return None
    try:
        return halves(**parameters)
    except GraphError:
        return None
