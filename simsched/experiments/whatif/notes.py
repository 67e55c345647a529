"""What a reader of an answer should know besides: what did not respond, what is not used."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from simsched.base.units import format_time
from simsched.experiments.whatif.changes import speed_of
from simsched.experiments.whatif.costs import rates
from simsched.experiments.whatif.question import Question

_WORSE: Final = 1 + 1e-9
_NAMED: Final = 4  # devices


def notes_of(asked: Question) -> Iterator[str]:
    """Give the notes of a question, which is answered for them."""
    old, new, graph, plan = asked.ground.cluster, asked.cluster, asked.graph, asked.plan
    changed = [change.parameter for change in asked.changes]
    of_links = any(parameter.startswith("link.") for parameter in changed)
    pairs = [(old.devices[i if i < len(old) else 0], device) for i, device in enumerate(new.devices)]
    pure = np.flatnonzero(~np.isnan(graph.time) & (graph.flops == 0) & (graph.nbytes == 0))
    if len(pure) and any(rates(a) != rates(b) for a, b in pairs):
        have = f"{len(pure)} of {len(graph)} operators have a time but neither FLOP nor bytes"
        yield f"{have}, {graph.names[pure[0]]!r} for one: no rate of a device changes it"
    if any(a.model != b.model for a, b in pairs) and len(graph.kernel_blocks):
        yield f"kernels keep the grids and blocks that they have on {old.devices[0].model}"
    if "device.l2" in changed:
        yield "nothing in the model depends on device.l2"
    exact = int((~np.isnan(graph.edge_transfer)).sum())
    if of_links and not new.links:
        yield "there are no links to change"
    elif of_links and exact:
        yield f"{exact} of {len(graph.src)} edges have an exact transfer time, which no link changes"
    added = [name for name in new.index if name not in old.index]
    if added and not any(name in plan.devices_used for name in added):
        names, it = ", ".join(added[:_NAMED]), "it" if len(added) == 1 else "them"
        names += f" and {len(added) - _NAMED} more" if len(added) > _NAMED else ""
        if asked.rescheduled:
            yield f"{plan.scheduler} makes no use of {names}; other schedulers may"
        else:
            yield f"the plan was made without {names} and does not use {it}; reschedule"
    if new.links and of_links and not any(len(trace.program.copies.op) for trace in (asked.before, asked.after)):
        yield "nothing is copied between devices: links make no difference"
    named = [name for _, name in filter(None, map(speed_of, changed)) if name is not None]
    gone = next((name for name in named if name in graph.index and name not in plan.graph.index), None)
    if gone is not None:
        yield f"{plan.scheduler} rewrote the graph: {gone!r} is not in the plan, and its speed makes no difference"
    if asked.kept is not None and asked.makespan > asked.kept.makespan * _WORSE:
        worse = format_time(asked.makespan - asked.kept.makespan)
        yield f"the plan made anew is {worse} slower than the old one would be: keep that"
