"""What a reader of an answer should know besides: what did not respond, what is not used."""

from typing import Final

import numpy as np

from simsched.base.units import format_time
from simsched.experiments.whatif.changes import speed_of
from simsched.experiments.whatif.costs import rates
from simsched.experiments.whatif.world import World
from simsched.model.schedule import Schedule

_WORSE: Final = 1 + 1e-9
_NAMED: Final = 4  # devices


def notes_of(
    world: World, plan: Schedule, rescheduled: bool, copied: bool, kept_us: float | None, makespan: float
) -> tuple[str, ...]:
    """Return the notes of a question.

    Parameters
    ----------
    world, plan, rescheduled
        What there is after the changes, and whether the plan was made anew.
    copied
        Whether anything is copied between devices, before or after the changes.
    kept_us, makespan
        Makespans in us after the changes: if the plan stayed (None if it cannot), and of the plan.
    """
    notes = _of_the_world(world)
    new = [name for name in world.cluster.index if name not in world.ground.cluster.index]
    if new and not any(name in plan.devices_used for name in new):
        names, it = ", ".join(new[:_NAMED]), "it" if len(new) == 1 else "them"
        names += f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        if rescheduled:
            notes.append(f"{plan.scheduler} makes no use of {names}; other schedulers may")
        else:
            notes.append(f"the plan was made without {names} and does not use {it}; reschedule")
    changed = [change.parameter for change in world.changes]
    if world.cluster.links and not copied and any(each.startswith("link.") for each in changed):
        notes.append("nothing is copied between devices: links make no difference")
    named = [name for _, name in filter(None, map(speed_of, changed)) if name is not None]
    gone = [name for name in named if name in world.graph.index and name not in plan.graph.index]
    if gone:
        rewritten = f"{plan.scheduler} rewrote the graph: {gone[0]!r} is not in the plan"
        notes.append(f"{rewritten}, and its speed makes no difference")
    if kept_us is not None and makespan > kept_us * _WORSE:
        notes.append(
            f"the plan made anew is {format_time(makespan - kept_us)} slower than the old one would be: keep that"
        )
    return tuple(notes)


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
