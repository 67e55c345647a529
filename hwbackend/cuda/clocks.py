"""The clocks of several GPUs, brought to one."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import numpy as np

from hwbackend.cuda.errors import quietly
from hwbackend.cuda.interface import CudaApi, Function
from hwbackend.cuda.streams import STAMP

_TRIES: Final = 30
_WORD_NBYTES: Final = 8
_ONE: Final = (1, 1, 1)


def clock_offsets(api: CudaApi, functions: Mapping[int, Mapping[str, Function]]) -> dict[int, int]:
    """Return by how many ns the clock of each GPU is ahead of the host's; of a single GPU 0.

    Parameters
    ----------
    functions
        Compiled kernels of each GPU.

    Notes
    -----
    A kernel that writes the time runs between two readings of the host's clock; the try with the least between them
    counts, and the kernel is taken to have run in the middle: off by half of a round trip, some 5 us, less what it has
    in common on all GPUs.
    """
    if len(functions) == 1:
        return dict.fromkeys(functions, 0)
    return {device: _offset(api, device, found[STAMP]) for device, found in functions.items()}


def _offset(api: CudaApi, device: int, stamp: Function) -> int:
    words = np.zeros(1, np.uint64)
    best: tuple[int, int] | None = None
    api.set_device(device)
    with ExitStack() as stack:
        stream = api.stream(0)
        stack.callback(quietly, api.destroy_stream, stream)
        address = api.malloc(_WORD_NBYTES)
        stack.callback(quietly, api.free, address)
        call = api.launcher(stamp, _ONE, _ONE, 0, stream, [np.uint64(address)])
        for _ in range(_TRIES):
            before = api.host_ns()
            call()
            api.synchronize_stream(stream)
            after = api.host_ns()
            api.read(address, words, stream)
            found = after - before, int(words[0]) - (before + after) // 2
            best = found if best is None else min(best, found)
    assert best is not None
    return best[1]
