"""`TracedProgram`: the program of a trace, and its measured data."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simsched.model import Cluster, Floats, Program
from simsched.model.trace import Trace, measured_trace
from workloads.formats.kineto.collectives import RankCollective
from workloads.formats.kineto.rates import CollectiveRates, counts_of, rates_of


@dataclass(frozen=True)
class Measured:
    """The measured data of a traced program, in addition to its instructions.

    Parameters
    ----------
    cluster
        The devices that ran it: their stated properties, `launch`, `launch_latency` and `gap` as measured there,
        and contention off, since the times of operators were measured in place.
    times
        Measured start and end of each operator in us from the beginning of the step, shape (n_ops, 2).
    step
        Its number; None if the trace has none, or all of it is read.
    begin
        When the step begins in ns, by the clock of the host.
    n_waits, guessed_waits
        Waits of streams for others, and how many of them are resolved by the rule instead of by event ids.
    n_lost
        Number of operators without a call in the trace.
    untraced_us
        Idle time of the devices that nothing in the trace explains.
    n_early
        Operators that start before the one before them on their stream ends (programmatic dependent launch).
    faults
        Number of wrong records, by kind.
    collectives
        Collectives of the step, in the order of their start.
    ranks
        How many processes ran it.
    n_met, waiting_us, transfer_us
        Of several ranks: number of collectives that were matched with other ranks, their waiting for peers and their
        transfer time, in us.
    is_stated
        Whether the trace says which devices these are.
    blocking
        Calls that block their thread in the step before it launches more, and how many of each: no capture survives
        them.
    ready
        From when on each operator could have started as far as call, stream and waits say, in us; shape (n_own,).
    kernels
        The names of the kernels, copies and memsets in full, for operators that were launched in the step.
    n_own
        Number of operators that were launched in the step; they come first.
    silence
        Begin and length in us of the longest time for which nothing is recorded; None if it is short.
    n_graphs
        Launches of captured graphs of several nodes.
    """

    cluster: Cluster
    times: Floats
    step: int | None
    begin: int
    n_waits: int
    guessed_waits: int
    n_lost: int
    untraced_us: float
    n_early: int
    faults: Counter[str]
    collectives: tuple[RankCollective, ...]
    n_own: int
    is_stated: bool
    blocking: Counter[str]
    ready: Floats
    kernels: tuple[str, ...]
    silence: tuple[float, float] | None = None
    n_graphs: int = 0
    ranks: int = 1
    n_met: int = 0
    waiting_us: float = 0.0
    transfer_us: float = 0.0


class TracedProgram(Program):
    """The program of a trace, with its measured data (`of_trace`) and their fields."""

    of_trace: Measured

    @property
    def cluster(self) -> Cluster:
        """The devices that ran it, see `Measured`."""
        return self.of_trace.cluster

    @property
    def times(self) -> Floats:
        """Measured start and end of each operator in us from the beginning of the step, shape (n_ops, 2)."""
        return self.of_trace.times

    @property
    def step(self) -> int | None:
        """Number of the step; None if the trace has none, or all of it is read."""
        return self.of_trace.step

    @property
    def n_waits(self) -> int:
        """Waits of streams for others."""
        return self.of_trace.n_waits

    @property
    def guessed_waits(self) -> int:
        """How many waits are resolved by the rule instead of by event ids."""
        return self.of_trace.guessed_waits

    @property
    def n_lost(self) -> int:
        """Number of operators without a call in the trace."""
        return self.of_trace.n_lost

    @cached_property
    def measured(self) -> Trace:
        """The measured spans, in us from the beginning of the step."""
        return measured_trace(self, self.cluster, np.maximum(0.0, self.times))

    @property
    def measured_makespan(self) -> float:
        """When the last operator ended, in us from the beginning of the step."""
        return float(self.times[:, 1].max())

    @cached_property
    def rates(self) -> CollectiveRates:
        """The collectives by operation, beside the model's times on the usual links of the GPU.

        Times are measured ones: of a collective that was matched with other ranks the transfer, else with waiting.
        """
        return rates_of(self.of_trace.collectives, self.graph.time, self.graph.names, self.cluster.devices[0])

    @property
    def untraced_share(self) -> float:
        """For which part of the step devices were idle with nothing in the trace that explains it."""
        return self.of_trace.untraced_us / self.measured_makespan / len(self.cluster)

    def lines(self) -> list[str]:
        """Return the gaps and faults of the trace, a line each; none if there are none."""
        of = self.of_trace
        lines = []
        if of.ranks > 1:
            if of.n_met:
                by = f"by {of.n_met} collectives"
            else:
                by = "as they stand: they have no collective in common"
            lines.append(f"ranks: {of.ranks} processes are put together, their clocks {by}")
        if of.faults:
            lines.append("records: " + ", ".join(f"{count} {fault}" for fault, count in of.faults.items()))
        if of.untraced_us:
            lines.append(
                f"untraced: {100 * self.untraced_share:.1f} % of the step is idle that nothing in the trace explains; "
                "it is kept"
            )
        if of.silence is not None:
            begin, length = of.silence
            part = f"{100 * length / self.measured_makespan:.1f} % of the step, from {begin:.0f} us on,"
            lines.append(f"silence: {part} has no record of a host or a device; it counts as time of the host")
        if of.n_early:
            lines.append(f"early starts: {of.n_early} kernels start before the one before them on their stream ends")
        if of.collectives:
            lines += [*self.rates.lines(), self._on_collectives()]
        return lines

    def _on_collectives(self) -> str:
        of = self.of_trace
        total = sum(one.time for one in of.collectives)
        start = f"collectives: {len(of.collectives)}, {total:.1f} us in all"
        if self.rates.are_stated and self.rates.unknown:
            unknown = self.rates.unknown
            end = f"; of {unknown.total()} the exchange is not known: {counts_of(unknown)}"
        else:
            end = ""
        if of.ranks == 1:
            cause = "transfer and waiting for peers cannot be told apart; give traces of the other ranks too"
            return f"{start}: {cause}{end}"
        rest = len(of.collectives) - of.n_met
        if rest:
            unmatched = f"; of {rest} transfer and waiting cannot be told apart"
        else:
            unmatched = ""
        return (
            f"{start}; of {of.n_met}: transfer {of.transfer_us:.1f} us, waiting {of.waiting_us:.1f} us{unmatched}{end}"
        )
