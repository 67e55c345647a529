"""`what_if`: the way into all questions."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from simsched.experiments.whatif.answer import Answer, Case
from simsched.experiments.whatif.question import Question
from simsched.experiments.whatif.sensitivity import sensitivity
from simsched.experiments.whatif.sweep import sweep
from simsched.experiments.whatif.world import Ground, rates
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
        return tuple(_notes_of(self))

    def answer(self) -> Answer:
        """Return the answer, which can be kept in a file."""
        return Answer(
            changes=tuple(map(str, self.changes)), notes=self.notes, rescheduled=self.rescheduled,
            before=Case.of(self.before, self.ground.plan, self.ground.cost),
            kept=None if self.kept is None else Case.of(self.kept, self.kept_plan, self.cost),
            after=Case.of(self.after, self.plan, self.cost),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON document, format ``simsched.whatif`` version 1."""
        return self.answer().to_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the answer to a JSON file, whole or not at all."""
        self.answer().save(path)

    load = staticmethod(Answer.load)

    # further questions, functions of this one

    sweep, sensitivity = sweep, sensitivity


def what_if(
    plan_or_graph: Schedule | OpGraph, cluster: Target, reschedule: bool = False, *,
    scheduler: str | Scheduler | None = None, options: Mapping[str, Any] | None = None, cost: CostModel | None = None,
    load: Callable[..., OpGraph] | None = None,
) -> WhatIf:  # fmt: skip
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

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", "conv", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> asked = ss.what_if(graph, ss.Cluster.preset("a100").without_overheads()).operators(kind="conv", speed=2.0)
    >>> asked.makespan_before, asked.makespan, asked.difference
    (40.0, 25.0, -15.0)
    """
    ground = Ground(plan_or_graph, cluster, scheduler, dict(options or {}), cost, load)
    return WhatIf(ground, rescheduled=bool(reschedule))


def _notes_of(asked: Question) -> Iterator[str]:
    """Give the notes of a question, which is answered for them."""
    old, new, graph, plan = asked.ground.cluster, asked.cluster, asked.graph, asked.plan
    of_links = any(change.parameter.startswith("link.") for change in asked.changes)
    pairs = [(old.devices[i if i < len(old) else 0], device) for i, device in enumerate(new.devices)]
    pure = np.flatnonzero(~np.isnan(graph.time) & (graph.flops == 0) & (graph.nbytes == 0))
    if len(pure) and any(rates(a) != rates(b) for a, b in pairs):
        have = f"{len(pure)} of {len(graph)} operators have a time but neither FLOP nor bytes"
        yield f"{have}, {graph.names[pure[0]]!r} for one: no rate of a device changes it"
    if any(a.model != b.model for a, b in pairs) and len(graph.kernel_blocks):
        yield f"kernels keep the grids and blocks that they have on {old.devices[0].model}"
    exact = int((~np.isnan(graph.edge_transfer)).sum())
    if of_links and exact:
        yield f"{exact} of {len(graph.src)} edges have an exact transfer time, which no link changes"
    added = [name for name in new.index if name not in old.index]
    if added and not any(name in plan.devices_used for name in added):
        remedy = "other schedulers may" if asked.rescheduled else "reschedule"
        yield f"{plan.scheduler} makes no use of the devices that were added: {remedy}"
    if of_links and not any(len(trace.program.copies.op) for trace in (asked.before, asked.after)):
        yield "nothing is copied between devices: links make no difference"
