"""Programs with the operators of PyTorch: cuDNN and cuBLAS on CUDA streams, or one core of the CPU.

On CUDA a network is captured once, and every schedule runs the nodes of that capture: in a graph with edges of its own,
or launched by packed calls (`donated`). The graph is realised with the launch shapes of these nodes. An operator with a
node that cannot be moved alone runs as a graph of its own nodes. Where no node can be moved (cuda-bindings or PyTorch
2.8 are missing, several devices, a capture that allocates), PyTorch issues or captures each schedule.
``environment["issued"]`` says which, and why.

There an operator is called when its first launch is issued; it launches what PyTorch launches for it, and the launches
behind the first only stand for more of that. Outputs are tensors that PyTorch allocates: they are kept while a program
runs, a captured graph has them in memory of its own. Weights and inputs are made once for a graph, and kept until
another graph runs. TF32 is used by operators whose works allow it. The trying out of algorithms is off, deterministic
algorithms are chosen.

On a CPU one thread runs the operators in the order in which the program issues them. Events and barriers cannot matter
there, so they are proved to order everything that is read before anything runs (as they are on CUDA).
"""

import gc
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from hwbackend.executor.driver import require_driver
from hwbackend.measuring import profiling
from hwbackend.measuring.environment import environment
from hwbackend.measuring.synth import SYNTH, realised
from hwbackend.torch.devices import clock, cpu_cluster, cuda_cluster, driver, line, pin_algorithms, require_torch
from hwbackend.torch.donated import DonatedNetwork, NotDonatedError, ReplayTimes
from hwbackend.torch.donor import DonorCuda, alone
from hwbackend.torch.hosts import CpuHost, CudaHost, TorchCuda, capture_errors, issue_order
from hwbackend.torch.operators import VIEWS, Place
from hwbackend.torch.pieces import Parameters, drawn_parameters
from hwbackend.torch.traces import kernels_measured, launch_spans, read_counts, spans_measured
from hwbackend.torch.values import Values
from hwbackend.torch.weights import GraphWeights
from simsched.base.errors import BackendError, FormatError, MissingDependencyError, SimschedError
from simsched.model import Floats, Operator, OpGraph, Program, Schedule
from simsched.model.backend import prepare, require_counts
from simsched.model.profile import Profile, Replay
from simsched.model.trace import measured_trace

_logger = logging.getLogger(__name__)

_REMEMBERED: Final = 32  # graphs whose kernels are kept


def availability() -> tuple[bool, str]:
    """Return whether PyTorch can be used here, and what it finds."""
    torch = require_torch()
    if not torch.cuda.is_available():
        return True, f"PyTorch {torch.__version__} finds no CUDA device; it runs on one core of the CPU"
    count = torch.cuda.device_count()
    return True, f"PyTorch {torch.__version__} with {count} CUDA device{'s' if count > 1 else ''}"


class TorchBackend:
    """PyTorch on CUDA devices, or on one core of the CPU.

    Parameters
    ----------
    device
        ``"cuda"`` or ``"cpu"``; None takes CUDA where there is a device for it.
    n_devices
        How many devices to use: on CUDA all by default; on the CPU one, more are logical ones with
        buffers of their own.
    spans
        Where the spans of a trace on CUDA come from: ``"profiler"`` for captured graphs, which takes a session for each
        replay and slows the launches after it, or ``"events"`` around each operator of a run that is not captured.
    parameters
        Makes the weights of operators; by default they are drawn by the operators' names.

    Raises
    ------
    MissingDependencyError
        If PyTorch is not installed.
    BackendError
        If there is no such device, or fewer.
    """

    name = "torch"

    def __init__(
        self,
        device: str | None = None,
        n_devices: int | None = None,
        *,
        spans: str = "profiler",
        parameters: Parameters = drawn_parameters,
    ) -> None:
        if spans not in ("profiler", "events"):
            raise BackendError(f"spans come from 'profiler' or 'events', not from {spans!r}")
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # read when CUDA starts
        self._torch = torch = require_torch()
        has_cuda = torch.cuda.is_available()
        device = device or ("cuda" if has_cuda else "cpu")
        if device not in ("cuda", "cpu"):
            raise BackendError(f"the torch backend runs on 'cuda' or 'cpu', not on {device!r}")
        if device == "cuda" and not has_cuda:
            raise BackendError(
                f"PyTorch {torch.__version__} finds no CUDA device; use device='cpu', or install a driver"
            )
        present = torch.cuda.device_count() if device == "cuda" else None
        count = n_devices if n_devices is not None else present or 1
        require_counts(1, n_devices=count)
        if present is not None and count > present:
            raise BackendError(f"{count} devices were asked for, but PyTorch finds {present}")
        self.device = device
        self._parameters, self._profiled = parameters, spans == "profiler"
        self._places = [
            Place(torch, torch.device("cpu") if device == "cpu" else torch.device("cuda", i)) for i in range(count)
        ]
        self._api = None if device == "cpu" else TorchCuda(torch)
        self.cluster = cpu_cluster(count) if device == "cpu" else cuda_cluster(torch, count)
        self._kept: dict[int, tuple[OpGraph, OpGraph]] = {}
        self._weights: GraphWeights | None = None
        self._donated: _Donated | None = None

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph as PyTorch runs it; see `Backend.realise`.

        Operators without kernels that only look at what they read stay views. On the CPU kernels stay as they are.
        """
        known = self._kept.get(id(graph))
        if known is not None and known[0] is graph:
            return known[1]
        found = _with_views(graph, realised(graph, self.cluster))
        if self._api is not None and any(op.kind != SYNTH and op.kernels for op in found.operators):
            found = self._with_kernels(found)
        for key in (graph, found):
            self._kept[id(key)] = (key, found)
        while len(self._kept) > _REMEMBERED:
            del self._kept[next(iter(self._kept))]
        return found

    def microbenchmarks(self) -> Profile:
        """Measure small schedules made to identify the parameters of the devices; see `Backend.microbenchmarks`.

        The synthetic operators of this backend are products of matrices and copies of as many FLOP and bytes; PyTorch
        chooses their blocks.
        """
        return profiling.microbenchmarks(self)

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:
        """Measure the operators of a graph; see `Backend.profile`."""
        return profiling.profile(self, graph, in_situ, rng)

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """Run a schedule and check its outputs; see `Backend.replay`.

        The trace on CUDA is of the run of median length under the profiler; where it records no kernels,
        between events around each operator: ``environment["spans"]`` says which.
        """
        program = prepare(self, schedule, repeats, warmup)
        if self._api is not None and program.execution == "graph" and len(set(program.device.tolist())) > 1:
            raise BackendError("PyTorch captures a graph of one device only; use execution 'events' for several")
        with self._running(program.graph.name):
            found = self._measure(program, repeats, warmup)
        return Replay(
            latency=tuple(found.latency),
            trace=measured_trace(program, self.cluster, found.launches, found.copies),
            environment=self._environment(found),
            max_relative_error=found.error,
            name=schedule.scheduler if isinstance(schedule, Schedule) else "replay",
        )

    def _measure(self, program: Program, repeats: int, warmup: int) -> ReplayTimes:
        """Run a program with the nodes of one capture where that is possible, else by calls of PyTorch."""
        if self._api is None:
            return self._on_cpu(program, self._values_of(program), repeats, warmup)
        try:
            return self._donated_of(program.graph).measure(program, repeats, warmup, profiled=self._profiled)
        except NotDonatedError as error:
            found = self._on_cuda(program, self._values_of(program), repeats, warmup)
            return found._replace(issued=f"PyTorch: {error}")

    def _values_of(self, program: Program) -> Values:
        return Values(self._torch, program, self._places, self._weights_of(program.graph))

    def _on_cpu(self, program: Program, values: Values, repeats: int, warmup: int) -> ReplayTimes:
        host = CpuHost(program, values.compute, values.move)
        error = _largest_error(values, host.run)
        runs = []
        for _ in range(warmup + repeats):
            values.reset()
            runs.append((host.run(), host.operators.copy(), host.copies.copy()))
        runs = runs[warmup:]
        latency = [run[0] for run in runs]
        _, operators, copies = sorted(runs, key=lambda run: run[0])[repeats // 2]
        return ReplayTimes(latency, launch_spans(program, operators), copies, error, "clock of the host")

    def _on_cuda(self, program: Program, values: Values, repeats: int, warmup: int) -> ReplayTimes:
        host = self._host(program, values)
        is_graph = program.execution == "graph"
        error = _largest_error(values, host.run)  # also makes the handles and workspaces of PyTorch on every stream
        if is_graph:
            error = max(error, _largest_error(values, partial(_captured_run, host, program)))
            values.reset()
            _capture(host, program)
        latency = []
        for _ in range(warmup + repeats):
            if not is_graph:
                values.reset()
            latency.append(host.run())
        launches, copies, how = self._spans(program, values, host if is_graph else None)
        return ReplayTimes(latency[warmup:], launches, copies, error, how)

    def _donated_of(self, graph: OpGraph) -> DonatedNetwork:
        """Return the capture of a graph; the last graph's is kept.

        Raises
        ------
        NotDonatedError
            If it cannot be captured, or nodes cannot be moved: cuda-bindings or a newer PyTorch are missing.
        """
        if self._donated is not None and not any(graph is other for other in self._donated.graphs):
            self._forget()
        if self._donated is None:
            self._donated = _Donated([graph], *self._capture(graph))
        if self._donated.network is None:
            raise NotDonatedError(self._donated.reason)
        return self._donated.network

    def _capture(self, graph: OpGraph) -> tuple[DonatedNetwork | None, str]:
        """Return the capture of a graph, or why there is none."""
        try:
            driver = require_driver()
            program = alone(graph, self.cluster)
            values = self._values_of(program)
            open_api = partial(DonorCuda, self._torch, driver)
            return DonatedNetwork(self._torch, open_api, program, values), ""
        except (NotDonatedError, MissingDependencyError) as error:
            return None, str(error)

    def _forget(self) -> None:
        """Let go of the weights and the capture of the last graph."""
        if self._donated is not None and self._donated.network is not None:
            self._donated.network.close()
        self._weights = self._donated = None

    def _weights_of(self, graph: OpGraph) -> GraphWeights:
        """Return the weights of a graph; the last graph's are kept."""
        if self._weights is not None and self._weights.graph is not graph:
            self._forget()  # first free the memory that they hold
        if self._weights is None:
            self._weights = GraphWeights(graph, self._places, self._parameters)
        return self._weights

    def _host(self, program: Program, values: Values, **options: bool) -> CudaHost:
        assert self._api is not None
        return CudaHost(self._api, program, values.compute, values.move, **options)

    def _spans(self, program: Program, values: Values, captured: CudaHost | None) -> tuple[Floats, Floats, str]:
        """Return the spans of launches and copies, and how they were measured."""
        try:
            if not self._profiled:
                raise FormatError("no profiler was asked for")
            marked = self._host(program, values, marked=True)
            if captured is None:
                return *spans_measured(self._torch, _each(values, marked), program), "profiler"
            weights = self._weights_of(program.graph)
            if weights.counts is None:  # a graph has one device, so that the counts are the same for every schedule
                weights.counts = read_counts(self._torch, _each(values, marked), program)
            nodes = [mark for mark in issue_order(program) for _ in range(weights.counts[mark])]
            values.reset()
            _capture(captured, program)
            return *spans_measured(self._torch, captured.run, program, nodes), "profiler"
        except FormatError as error:
            _logger.warning("%s; spans are those between events", error)
        timed = self._host(program, values, timed=True)
        _each(values, timed)()
        operators, copies = timed.spans()
        how = "events" if captured is None else "events, of a run that was not captured"
        return launch_spans(program, operators), copies, how

    def _with_kernels(self, graph: OpGraph) -> OpGraph:
        """Return a graph with the kernels that PyTorch launches for it on the first device."""
        first = replace(self.cluster, devices=self.cluster.devices[:1], links=())
        plan = Schedule.from_columns(graph, graph.order_index, (first.devices[0].name,))
        program = plan.lower(first)
        with self._running(graph.name):
            try:
                donated = self._donated_of(graph)
            except NotDonatedError as error:
                _logger.info("%s: kernels are those that a profiler sees: %s", graph.name, error)
                found = self._profile(program)
            else:
                found = donated.with_kernels(graph)
                assert self._donated is not None
                assert self._weights is not None
                self._donated.graphs.append(found)
                self._weights.graph = found  # the calls are the same
                return found
        pairs = zip(graph.operators, found.operators, strict=True)
        kept = [old if old.kind == SYNTH or not old.kernels else new for old, new in pairs]
        return OpGraph(kept, graph.edges, graph.name)

    def _profile(self, program: Program) -> OpGraph:
        """Return the program's graph with the kernels that a profiler sees."""
        values = Values(self._torch, program, self._places, self._weights_of(program.graph))
        run = _each(values, self._host(program, values, marked=True))
        run()
        try:
            return kernels_measured(self._torch, run, program.graph)
        except FormatError as error:
            _logger.warning("%s; kernels stay as the graph has them", error)
            return program.graph

    @contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Have PyTorch run as pinned down here, turn what it raises into one line, and give its memory back."""
        torch = self._torch
        try:
            with pin_algorithms(torch, one_thread=self._api is None), torch.inference_mode():
                yield
        except SimschedError:
            self._forget()
            raise
        except (torch.cuda.OutOfMemoryError, MemoryError) as error:
            self._forget()
            traceback.clear_frames(error.__traceback__)  # what they hold is the memory
            raise BackendError(
                f"{what}: out of memory: {line(error)}; use a smaller batch, or fewer operators at a time"
            ) from None
        except RuntimeError as error:
            self._forget()
            traceback.clear_frames(error.__traceback__)
            raise BackendError(f"{what}: PyTorch failed: {line(error)}") from None
        finally:
            if self._api is not None:
                gc.collect()
                with suppress(RuntimeError):  # after a fault of the device
                    torch.cuda.empty_cache()

    def _environment(self, found: ReplayTimes) -> dict[str, str]:
        torch = self._torch
        more = {"torch": str(torch.__version__), "spans": found.spans, "issued": found.issued}
        if self._api is None:
            return environment(self.name, "one core of the CPU", **more)
        more["runtime"] = str(torch.version.cuda)
        more["cudnn"] = str(torch.backends.cudnn.version())
        return environment(self.name, torch.cuda.get_device_name(0), **more, **driver(), **clock(torch))


@dataclass
class _Donated:
    """The capture of a network, or why there is none; graphs with other kernels may have the same operators."""

    graphs: list[OpGraph]
    network: DonatedNetwork | None
    reason: str


def _largest_error(values: Values, run: Callable[[], object]) -> float:
    """Run a program on poisoned buffers; return the largest error of its outputs."""
    expected = values.sequential()
    values.reset(poisoned=True)
    run()
    return values.largest_error(expected)


def _each(values: Values, host: CudaHost) -> Callable[[], object]:
    """Return what runs a program once, having forgotten the outputs of the run before."""

    def run() -> float:
        values.reset()
        return host.run()

    return run


def _capture(host: CudaHost, program: Program) -> None:
    with capture_errors(host, program.graph.name):
        host.capture()


def _captured_run(host: CudaHost, program: Program) -> None:
    _capture(host, program)
    host.run()


def _with_views(graph: OpGraph, found: OpGraph) -> OpGraph:
    """Return a realised graph with the views of the graph that it was made of."""
    views = [op for op in graph.operators if _is_view(op)]
    if not views:
        return found
    pairs = zip(graph.operators, found.operators, strict=True)
    return OpGraph([old if _is_view(old) else new for old, new in pairs], found.edges, graph.name)


def _is_view(op: Operator) -> bool:
    return op.kind in VIEWS and not op.kernels and not op.works and op.time == 0.0 and op.output_shape is not None
