"""Times and profiles of variants of a graph, on its real inputs and their device."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hwbackend.measuring.environment import own_version
from hwbackend.torch.devices import cuda_cluster, require_torch
from hwbackend.torch.inductor import doors
from hwbackend.torch.inductor.profiled import read_kernels
from hwbackend.torch.traces import record_trace
from simsched.base.errors import BackendError, FormatError
from simsched.model import Target
from simsched.model.profile import Profile

_WARMUPS: Final = 3  # calls until a graph is captured: PyTorch runs it once as it is, records it, and replays it
_CALLS: Final = 5  # that one timing takes the mean of, and that a profile has


class Measure:
    """Times calls on the real inputs, and leaves inputs and random numbers as they were.

    Parameters
    ----------
    inputs
        Of the graph.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._torch = require_torch()
        self._inputs = list(inputs)
        self._device = self._inputs[0].device

    def warm(self, run: Callable[..., Any]) -> None:
        """Call a variant until it is captured."""
        for _ in range(_WARMUPS):
            run(*self._inputs)
        self._torch.cuda.synchronize(self._device)

    def time(self, name: str, run: Callable[..., Any]) -> float:  # noqa: ARG002 - tests tell variants by it
        """Return the mean time in us of a few calls of a variant, the host's part included."""
        cuda = self._torch.cuda
        begin = cuda.Event(enable_timing=True)
        end = cuda.Event(enable_timing=True)
        with cuda.device(self._device):  # which need not be the current one
            begin.record()
            for _ in range(_CALLS):
                run(*self._inputs)
            end.record()
        end.synchronize()
        return float(1e3 * begin.elapsed_time(end) / _CALLS)

    def profile(self, run: Callable[..., Any], functions: Mapping[str, Sequence[str]]) -> Profile:
        """Return times and launches of kernels alone, see `read_kernels`, from a profile of a few calls.

        Raises
        ------
        BackendError
            If the profile is not exactly of these kernels.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            try:
                with self._torch.cuda.device(self._device):
                    record_trace(self._torch, lambda: run(*self._inputs), _CALLS, path)
                return read_kernels(path, functions, _CALLS)
            except FormatError as error:
                raise BackendError(str(error).removeprefix(f"{path}: ")) from error

    def restoring(self, gm: Any) -> "_Restored":
        """Return a context after which all that the graph writes to is as it was before."""
        with doors.outside_dynamo():
            written = doors.find_mutated_inputs(gm, self._inputs)
        return _Restored(self._torch, [self._inputs[i] for i in written])

    def target(self) -> Target:
        """Return the device as a cluster of one."""
        index = self._device.index
        cluster = cuda_cluster(self._torch, index + 1)
        return replace(cluster, devices=(replace(cluster.devices[index], name="gpu0"),), links=())

    def free_memory(self) -> float:
        """Return the bytes of the device that are free."""
        return float(self._torch.cuda.mem_get_info(self._device)[0])

    def identity(self) -> tuple[str, ...]:
        """Return the parts of a choice's key besides the graph: device, versions, and settings that choose kernels."""
        torch = self._torch
        return (
            torch.cuda.get_device_name(self._device),
            torch.__version__,
            str(torch.version.cuda),
            own_version(),
            torch.get_float32_matmul_precision(),
            f"benchmark {torch.backends.cudnn.benchmark}",
            f"deterministic {torch.are_deterministic_algorithms_enabled()}",
        )


class _Restored:
    """Keeps tensors and the states of random numbers, and puts them back."""

    def __init__(self, torch: Any, tensors: Sequence[Any]) -> None:
        self._torch = torch
        self._tensors = tensors

    def __enter__(self) -> None:
        torch = self._torch
        self._random = torch.random.fork_rng(devices=sorted({x.device.index for x in self._tensors if x.is_cuda}))
        self._random.__enter__()
        self._kept = [value.detach().clone() for value in self._tensors]

    def __exit__(self, *_error: object) -> None:
        with self._torch.inference_mode():  # only within it may tensors that were made in it be written to
            for value, kept in zip(self._tensors, self._kept, strict=True):
                value.copy_(kept)
        self._random.__exit__(None, None, None)
