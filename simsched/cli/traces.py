"""Traces of torch.profiler that commands were given: their facts and lines, and refusals of unsuitable ones."""

from typing import TYPE_CHECKING

from simsched.base.errors import ClusterError, SchedulerError

if TYPE_CHECKING:
    from workloads.formats.kineto.facts import TraceFacts
    from workloads.formats.kineto.traced import TracedProgram


def facts(program: "TracedProgram | None", fastest_us: float | None) -> "TraceFacts | None":
    """Return facts about the step that a trace ran, beside the fastest alternative in us; None without a trace."""
    if program is None:
        return None
    from workloads.formats.kineto.facts import facts_of

    return facts_of(program, fastest_us)


def lines(program: "TracedProgram | None") -> list[str]:
    """Return lines on the dependencies of the graph of a trace; none without a trace."""
    if program is None:
        return []
    return [
        "dependencies are those of the traced streams: an upper bound on what is needed (order=waits drops them)",
        f"waits between streams: {program.n_waits}, of which {program.guessed_waits} are guessed",
    ]


def require_one_rank(program: "TracedProgram | None", source: str) -> None:
    """Refuse to schedule the ranks of a trace anew: each has a device of its own.

    Raises
    ------
    SchedulerError
        If the trace holds several ranks.
    """
    if program is not None and program.of_trace.ranks > 1:
        raise SchedulerError(
            f"{source}: holds {program.of_trace.ranks} ranks, which cannot be scheduled anew; "
            "give the trace of one, or see replay-trace"
        )


def require_stated(program: "TracedProgram", source: str) -> None:
    """Refuse a trace that does not name its devices.

    Raises
    ------
    ClusterError
        If it does not; the message has the preset that its kernels hint at.
    """
    from workloads.formats.kineto.device import hinted_preset

    if not program.of_trace.is_stated:
        hint = hinted_preset(program.graph.names)
        name = f"{hint} (its kernels hint at that)" if hint else "NAME"
        raise ClusterError(f"{source}: the trace does not say which GPU ran it: give --gpu {name}")
