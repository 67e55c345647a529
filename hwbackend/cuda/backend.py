"""The cupy backend: NVIDIA GPUs with synthetic kernels, launched through CuPy."""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np

from hwbackend.cuda.api import CupyApi
from hwbackend.cuda.clocks import clock_offsets
from hwbackend.cuda.devices import cluster_of
from hwbackend.cuda.errors import cuda_errors, translate_error
from hwbackend.cuda.interface import CudaApi, Function
from hwbackend.cuda.kernels.launches import KERNEL_NAMES, NVRTC_OPTIONS, Resources, kernel_source
from hwbackend.cuda.operators import Numbers, Values, are_stand_ins, launches_of_graph, with_kernels
from hwbackend.cuda.run import Run
from hwbackend.cuda.streams import STAMP, STAMP_SOURCE
from hwbackend.measuring import profiling
from hwbackend.measuring.environment import environment
from simsched.base.errors import BackendError, SimschedError
from simsched.model import Cluster, OpGraph, Program, Schedule
from simsched.model.backend import prepare, require_counts
from simsched.model.profile import Profile, Replay
from simsched.model.trace import measured_trace

TOLERANCE: Final = 1e-3
"""Largest difference from sequential execution, over the largest value of the output: the same kernels ran."""

_MOST_TRACED: Final = 9  # runs that spans are the medians of
_COLD: Final = 2  # times the size of the L2 cache that is written before a cold run


class CupyBackend:
    """NVIDIA GPUs with synthetic kernels.

    Operators of networks are replaced by stand-ins: kernels of the same grid, block, registers, shared memory, bytes
    and time, as recorded with the graph or as the libraries of the device would choose. The environment of a replay
    says so. The torch backend runs real kernels.

    Parameters
    ----------
    devices
        How many GPUs to use; None uses all that CUDA shows.
    virtual_devices
        Above 1, one GPU acts as so many devices, with buffers of their own and real copies between them: to see
        that schedules for several devices work, not how fast they are.
    seed
        Seed of the parameters of operators.
    cold
        Whether the L2 cache is filled with other data before each timed run. By default it is left as the last run left
        it, as in a service that answers one request after the other.
    api
        Calls of CUDA; None makes them through CuPy.

    Raises
    ------
    MissingDependencyError
        If CuPy is not installed, or too old.
    BackendError
        If there is no GPU, no driver for this CuPy, or fewer GPUs than asked for.

    Notes
    -----
    Streams do not wait for the default one and have the priorities of the schedule, in graphs too. There is one host
    thread for each device that has one in the program; its calls are made ready before time is measured.
    """

    name = "cupy"

    def __init__(
        self,
        *,
        devices: int | None = None,
        virtual_devices: int = 1,
        seed: int = 0,
        cold: bool = False,
        api: CudaApi | None = None,
    ) -> None:
        require_counts(1, devices=1 if devices is None else devices, virtual_devices=virtual_devices)
        require_counts(0, seed=seed)
        self._api = CupyApi() if api is None else api
        with cuda_errors():
            found = self._api.devices()
        if not found:
            raise BackendError("there is no GPU that CUDA can see: check nvidia-smi and CUDA_VISIBLE_DEVICES")
        count = (1 if virtual_devices > 1 else len(found)) if devices is None else devices
        if count > len(found):
            raise BackendError(
                f"{count} GPUs were asked for, but there {'is' if len(found) == 1 else 'are'} {len(found)}; "
                "virtual_devices acts as more, for function only"
            )
        if virtual_devices > 1 and count > 1:
            raise BackendError(f"virtual devices are parts of one GPU; take devices=1, not {count}")
        self._found, self._seed, self._virtual = found[:count], seed, virtual_devices
        self._physical = tuple(range(count)) if virtual_devices == 1 else (0,) * virtual_devices
        self._cold_nbytes = _COLD * max(device.l2 for device in self._found) if cold else 0
        self._cluster = cluster_of(self._found, virtual_devices)
        self._realised: tuple[OpGraph, OpGraph] | None = None
        self._work: _PlacedWork | None = None

    @property
    def cluster(self) -> Cluster:
        """The GPUs, before calibration."""
        return self._cluster

    @cached_property
    def _functions(self) -> Mapping[int, Mapping[str, Function]]:
        """Compiled kernels of each GPU."""
        source, names = kernel_source() + STAMP_SOURCE, (*KERNEL_NAMES, STAMP)
        found = {}
        for device in range(len(self._found)):
            with cuda_errors(self._found[device].name):
                self._api.set_device(device)
                found[device] = self._api.compile(source, names, NVRTC_OPTIONS)
        return found

    @cached_property
    def _resources(self) -> Mapping[str, Resources]:
        """Resources of the kernels as compiled for the first GPU."""
        return {
            name: Resources(function.registers, function.shared_memory) for name, function in self._functions[0].items()
        }

    @cached_property
    def _peers(self) -> bool:
        """Whether every GPU can access the memory of the others; where one can, that is enabled."""
        gpus = range(len(self._found))
        enabled = [self._api.enable_peer(a, b) for a in gpus for b in gpus if a != b]  # all of them, then ask
        return all(enabled)

    @cached_property
    def _conditions(self) -> dict[str, str]:
        """What is said of where measurements were made."""
        return {
            **self._api.versions(),
            "devices": str(len(self._found)),
            "virtual_devices": str(self._virtual),
            "peer_access": "yes" if self._peers else "no",
            "cold": "yes" if self._cold_nbytes else "no",
            "seed": str(self._seed),
        }

    @cached_property
    def _clocks(self) -> str:
        """Clocks of the first GPU; to be asked for when it has been busy, since an idle one runs slowly."""
        return self._api.clocks(0)

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph as it is launched here; see `simsched.model.backend.Backend.realise`.

        Every operator becomes synthetic; registers and shared memory are those of the compiled kernels.
        """
        if self._realised is None or (graph is not self._realised[0] and graph is not self._realised[1]):
            self._realised = graph, with_kernels(graph, self._cluster, self._resources)
        return self._realised[1]

    def microbenchmarks(self) -> Profile:
        """Measure small schedules; see `simsched.model.backend.Backend.microbenchmarks`."""
        return profiling.microbenchmarks(self)

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:
        """Measure the operators of a graph; see `simsched.model.backend.Backend.profile`."""
        return profiling.profile(self, graph, in_situ, rng)

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """Run a schedule, check its outputs, time and trace it; see `simsched.model.backend.Backend.replay`.

        Raises
        ------
        BackendError
            If it cannot be run here, an output differs from sequential execution, or a call of CUDA fails; all
            that was allocated is free then.
        """
        program = prepare(self, schedule, repeats, warmup)
        with cuda_errors(program.graph.name):
            conditions = self._conditions
            work = self._work_on(program.graph)
            with self._run(program, work) as run:
                error = work.largest_error(run)
                latency = run.latencies(repeats, warmup)
                clocks = self._clocks
                offsets = clock_offsets(self._api, self._functions)  # anew: clocks drift apart
                launches, copies = run.spans(min(repeats, _MOST_TRACED), offsets)
        trace = measured_trace(program, self._cluster, launches, copies)
        kernels = "stand-ins" if are_stand_ins(program.graph) else "synthetic"
        said = environment(self.name, self._found[0].name, clocks=clocks, kernels=kernels, **conditions)
        name = schedule.scheduler if isinstance(schedule, Schedule) else None
        return Replay(tuple(latency), trace, said, error, name or "replay")

    def _work_on(self, graph: OpGraph) -> "_PlacedWork":
        """Return the buffers and calls of the last graph that ran."""
        if self._work is None or self._work.graph is not graph:
            self._work = None  # first free the memory that it holds
            work = _PlacedWork(graph, self._resources, self._seed)
            alone = Cluster(self._cluster.devices[:1])
            order = [work.number[name] for name in graph.order]
            sequential = Schedule.from_columns(graph, order, (alone.devices[0].name,), execution="events")
            with self._run(sequential.lower(alone), work) as run:
                for op, _, values in run.outputs():
                    work.keep(op, values)
            self._work = work
        return self._work

    def _run(self, program: Program, work: "_PlacedWork") -> Run:
        physical = self._physical[: len(program.devices)]
        return Run(
            self._api,
            program,
            work.launched,
            work.numbers,
            physical=physical,
            functions=self._functions,
            cold_nbytes=self._cold_nbytes,
        )


class _PlacedWork:
    """What is launched for a graph, the numbers it starts from, and its outputs in sequential execution."""

    def __init__(self, graph: OpGraph, resources: Mapping[str, Resources], seed: int) -> None:
        self.graph = graph
        self.number = {name: i for i, name in enumerate(graph.names)}
        self.launched = launches_of_graph(graph, resources)
        self.numbers = Numbers(graph, seed)
        self.reference: dict[int, Values] = {}

    def keep(self, op: int, values: Values) -> None:
        """Keep an output to compare with."""
        if not np.isfinite(values).all():
            raise BackendError(
                f"output of {self.graph.names[op]!r} is not finite even in sequential execution: "
                "its kernel is wrong, or the numbers of the network grow too large"
            )
        self.reference[op] = values

    def largest_error(self, run: Run) -> float:
        """Return the largest difference of an output from sequential execution, over its largest value."""
        largest = 0.0
        for op, device, values in run.outputs():
            expected, name = self.reference[op], self.graph.names[op]
            if np.array_equal(values.view(np.uint32), expected.view(np.uint32)):
                continue  # as the same kernels mostly give: one look at what may be gigabytes
            if not np.isfinite(values).all():
                raise BackendError(
                    f"output of {name!r} on {device} is not a number under the schedule: "
                    "something was read before it was written"
                )
            scale = float(np.abs(expected).max()) or 1.0
            error = float(np.abs(values - expected).max()) / scale
            if error > TOLERANCE:
                raise BackendError(
                    f"output of {name!r} on {device} differs by {error:.2g} of its largest value "
                    "from that of sequential execution"
                )
            largest = max(largest, error)
        return largest


def availability() -> tuple[bool, str]:
    """Return whether there is a GPU that can be used through CuPy, and which, or why not."""
    try:
        api = CupyApi()
        found = api.devices()
        versions = api.versions()
    except SimschedError as error:
        return False, str(error)
    except (RuntimeError, ImportError, OSError) as error:
        return False, str(translate_error(error))
    if not found:
        return False, "there is no GPU that CUDA can see: check nvidia-smi and CUDA_VISIBLE_DEVICES"
    return True, f"{len(found)} x {found[0].name}, CuPy {versions['cupy']}, CUDA driver {versions['driver']}"
