"""What a reader of an answer should know besides: what did not respond, what is not used."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from simsched.base.units import format_time
from simsched.experiments.whatif.changes import speed_of
from simsched.experiments.whatif.costs import rates
from simsched.experiments.whatif.world import World

if TYPE_CHECKING:
    from simsched.experiments.whatif.question import WhatIf

_WORSE: Final = 1 + 1e-9
_NAMED: Final = 4  # devices


def notes_of(asked: "WhatIf") -> tuple[str, ...]:
    """Return the notes of a question, which is answered for them."""
    return (*_of_the_world(asked.world), *_of_the_plan(asked))


def _of_the_plan(asked: "WhatIf") -> Iterator[str]:
    plan, kept = asked.plan, asked.kept
    new = [name for name in asked.cluster.index if name not in asked.ground.cluster.index]
    if new and not any(name in plan.devices_used for name in new):
        names, it = ", ".join(new[:_NAMED]), "it" if len(new) == 1 else "them"
        names += f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        if asked.rescheduled:
            yield f"{plan.scheduler} makes no use of {names}; other schedulers may"
        else:
            yield f"the plan was made without {names} and does not use {it}; reschedule"
    changed = [change.parameter for change in asked.changes]
    copied = any(len(trace.program.copies.op) for trace in (asked.before, asked.after))
    if asked.cluster.links and not copied and any(each.startswith("link.") for each in changed):
        yield "nothing is copied between devices: links make no difference"
    named = [name for _, name in filter(None, map(speed_of, changed)) if name is not None]
    gone = [name for name in named if name in asked.graph.index and name not in plan.graph.index]
    if gone:
        yield f"{plan.scheduler} rewrote the graph: {gone[0]!r} is not in the plan, and its speed makes no difference"
    if kept is not None and asked.makespan > kept.makespan * _WORSE:
        worse = format_time(asked.makespan - kept.makespan)
        yield f"the plan made anew is {worse} slower than the old one would be: keep that"


def _of_the_world(world: World) -> list[str]:
    old, new, graph = world.ground.cluster, world.cluster, world.graph
    notes: list[str] = []
    changed = [change.parameter for change in world.changes]
    pairs = [(old.devices[i if i < len(old) else 0], device) for i, device in enumerate(new.devices)]
    if any(rates(a) != rates(b) for a, b in pairs):
        pure = np.flatnonzero(~np.isnan(graph.time) & (graph.flops == 0) & (graph.nbytes == 0))
        if len(pure):
            notes.append(
                f"{len(pure)} of {len(graph)} operators have a time but neither FLOP nor bytes, "
                f"{graph.names[pure[0]]!r} for one: no rate of a device changes it"
            )
    if any(a.model != b.model for a, b in pairs) and len(graph.kernel_blocks):
        notes.append(f"kernels keep the grids and blocks that they have on {old.devices[0].model}")
    if "device.l2" in changed:
        notes.append("nothing in the model depends on device.l2")
    if any(parameter.startswith("link.") for parameter in changed):
        exact = int((~np.isnan(graph.edge_transfer)).sum())
        if not new.links:
            notes.append("there are no links to change")
        elif exact:
            notes.append(f"{exact} of {len(graph.src)} edges have an exact transfer time, which no link changes")
    return notes
