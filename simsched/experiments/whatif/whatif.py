"""`what_if`: the way into all questions."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from simsched.experiments.whatif.answer import Answer, Case
from simsched.experiments.whatif.explain import Explanation, explain
from simsched.experiments.whatif.notes import notes_of
from simsched.experiments.whatif.question import Question
from simsched.experiments.whatif.sensitivity import Sensitivity, sensitivity
from simsched.experiments.whatif.sweep import Sweep, sweep
from simsched.experiments.whatif.world import Ground
from simsched.model import CostModel, OpGraph, Schedule, Target
from simsched.schedulers import Scheduler


class WhatIf(Question):
    """A question of what would be if something were different, and its answer; made by `what_if`.

    Each method that changes something returns a longer question. Numbers are factors of what there is; `absolute`
    makes them values in library units. What is not said to change stays. Answers are computed when they are asked
    for, once; all times are in us.

    Notes
    -----
    Changes of different kinds are made in this order, whatever the order they were asked for in; of one kind, one
    after the other: `rebuild`; `fuse`, `remove`, `operators`; `gpus`; `device` presets; all other numbers. Factors of
    one parameter multiply; of values that are taken as they are the last counts.
    """

    @cached_property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What a reader should know besides: what did not respond, what is not used."""
        return tuple(notes_of(self))

    def answer(self) -> Answer:
        """Return the answer, which can be kept in a file."""
        before, kept = Case.of(self.before, self.ground.plan, self.ground.cost), None
        after = Case.of(self.after, self.plan, self.cost)
        if self.kept is not None:
            kept = Case.of(self.kept, self.world.kept, self.cost) if self.rescheduled else after
        texts = tuple(map(str, self.changes))
        return Answer(before, kept, after, texts, self.notes, self.rescheduled, self.rescheduling_alone)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON document, format ``simsched.whatif`` version 1."""
        return self.answer().to_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the answer to a JSON file, whole or not at all."""
        self.answer().save(path)

    load = staticmethod(Answer.load)

    # further questions

    def sweep(
        self, parameter: str, values: Sequence[Any], parameter2: str | None = None, values2: Sequence[Any] | None = None
    ) -> Sweep:
        """Return the makespans for several values of one parameter or of two; see `sweep`."""
        return sweep(self, parameter, values, parameter2, values2)

    def sensitivity(self, **options: Any) -> Sensitivity:
        """Return how the makespan responds to every parameter; see `simsched.experiments.whatif.sensitivity`."""
        return sensitivity(self, **options)

    def explain(self) -> Explanation:
        """Return in words what bounds the schedule, and what would help most; see `explain`."""
        return explain(self.plan, self.cluster, self.cost)


def what_if(
    plan_or_graph: Schedule | OpGraph,
    cluster: Target,
    reschedule: bool = False,
    *,
    scheduler: str | Scheduler | None = None,
    options: Mapping[str, Any] | None = None,
    cost: CostModel | None = None,
    load: Callable[..., OpGraph] | None = None,
) -> WhatIf:
    """Begin a question: what would be if something were different.

    Parameters
    ----------
    plan_or_graph
        What runs: a schedule, or a graph, which the scheduler makes one of.
    cluster
        What it runs on: a cluster, or a calibration, whose times of operators and fitted parameters are taken.
    reschedule
        Whether the plan is made anew after the changes; else the same plan runs in the changed world.
    scheduler
        A name or a function as `schedule` takes it, and its `options`. By default the one that made the plan, or
        ``"lios"``. A plan over a graph that its scheduler rewrote is re-scheduled over the rewritten graph.
    options
        The scheduler's own.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    load
        A function from keyword parameters to a graph, for `WhatIf.rebuild`.

    Returns
    -------
    WhatIf
        Nothing is computed until something of it is asked for.

    Raises
    ------
    WhatIfError
        If what is given is neither a schedule nor a graph.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", "conv", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> asked = ss.what_if(graph, ss.Cluster.preset("a100").without_overheads()).operators(kind="conv", speed=2.0)
    >>> asked.makespan_before, asked.makespan, asked.difference
    (40.0, 25.0, -15.0)
    """
    ground = Ground(plan_or_graph, cluster, scheduler, dict(options or {}), cost, load)
    return WhatIf(ground, rescheduled=bool(reschedule))
