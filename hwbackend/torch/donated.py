"""A network that PyTorch captured once, measured under schedules with the nodes of that capture; see `donor`."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hwbackend.executor.feeds import feeds_of
from hwbackend.measuring.synth import SYNTH
from hwbackend.torch.donor import DonatedHost, Donor, DonorCuda
from hwbackend.torch.traces import launch_spans, spans_measured
from hwbackend.torch.values import Values
from simsched.base.errors import BackendError, FormatError
from simsched.model import Floats, OpGraph, Program

_LISTED: Final = 3  # operators that a result names

_logger = logging.getLogger(__name__)


class NotDonatedError(BackendError):
    """A program that cannot run with the nodes of a donor."""


class ReplayTimes(NamedTuple):
    """Times that a replay measured.

    `latency` has the us of each repeat, `launches` and `copies` start and end of each in us, shape (n, 2). `error` is
    the largest relative error of an output. `spans` says how spans were measured, `issued` with which calls the program
    ran.
    """

    latency: list[float]
    launches: Floats
    copies: Floats
    error: float
    spans: str
    issued: str = "PyTorch"


def issued_by(whole: Mapping[str, str]) -> str:
    """Return with which calls a program ran, whose operators of these names are graphs of their own for a reason.

    >>> issued_by({})
    'nodes of one capture'
    >>> issued_by({"op": "a node of type host"})
    "nodes of one capture; as graphs of their own: 'op' (a node of type host)"
    """
    parts = [f"{name!r} ({reason})" for name, reason in list(whole.items())[:_LISTED]]
    if len(whole) > _LISTED:
        parts.append(f"{len(whole) - _LISTED} more")
    return "nodes of one capture" + (f"; as graphs of their own: {', '.join(parts)}" if parts else "")


class DonatedNetwork:
    """A captured network, and memory for all that its operators write.

    Parameters
    ----------
    torch
        PyTorch.
    open_api
        Makes a `DonorCuda`: one for the capture, and one for each program.
    program
        Runs each operator on a stream of its own; see `donor.alone`.
    values
        Of that program.

    Raises
    ------
    NotDonatedError
        If the network cannot be captured, or its graph is not given out.
    """

    def __init__(self, torch: Any, open_api: Callable[[], DonorCuda], program: Program, values: Values) -> None:
        self._torch = torch
        self._open_api = open_api
        self._values = values
        values.reset()
        api = open_api()
        try:
            self._donor = Donor(api, program, values.compute)
        except BackendError as error:
            api.close()
            raise NotDonatedError(str(error)) from error
        self._expected = values.sequential()

    def with_kernels(self, graph: OpGraph) -> OpGraph:
        """Return a graph of the same operators with the kernels of the nodes, where they have kernels."""
        captured = self._donor.with_kernels(graph)
        pairs = zip(graph.operators, captured.operators, strict=True)
        return OpGraph(
            [new if old.kernels and old.kind != SYNTH else old for old, new in pairs], graph.edges, graph.name
        )

    def measure(self, program: Program, repeats: int, warmup: int, *, profiled: bool) -> ReplayTimes:
        """Run a program of the network's operators, check its outputs, and measure it.

        Parameters
        ----------
        profiled
            Whether a profiler may be used for the spans of a captured graph. Without one, or where the driver does not
            tell which node is which, spans are of a run with events, not captured.

        Raises
        ------
        NotDonatedError
            If an operator cannot be moved, or the program is for several devices or host threads.
        BackendError
            If an operator computes other values than in sequential execution.
        """
        feeds_of(program)  # proves that events and barriers order what is read
        with self._host(program) as host:
            error = self._check(host)
            latency = [host.run() for _ in range(warmup + repeats)][warmup:]
            is_graph = program.execution == "graph"
            whole = host.whole
            marks = host.profiled_marks() if profiled else None
            if is_graph and marks is not None:
                try:
                    spans = spans_measured(self._torch, host.run, program, marks)
                    return ReplayTimes(latency, *spans, error, "profiler", issued_by(whole))
                except FormatError as reason:
                    _logger.warning("%s; spans are those between events", reason)
        with self._host(program, stamped=True) as stamped:
            error = max(error, self._check(stamped))
            stamped.run()
            operators, copies = stamped.spans()
        how = "events, of a run that was not captured" if is_graph else "events"
        return ReplayTimes(latency, launch_spans(program, operators), copies, error, how, issued_by(whole))

    def close(self) -> None:
        """Free the streams."""
        self._donor.close()

    def _host(self, program: Program, *, stamped: bool = False) -> DonatedHost:
        try:
            return self._donor.host(self._open_api(), program, stamped=stamped)
        except BackendError as error:
            raise NotDonatedError(str(error)) from error

    def _check(self, host: DonatedHost) -> float:
        """Run a program on poisoned memory; return the largest error of its outputs."""
        self._values.poison()
        host.run()
        return self._values.largest_error(self._expected)
