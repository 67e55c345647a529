"""Device memory of one program: every buffer is allocated before anything runs, and freed when all has run."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import numpy as np

from hwbackend.cuda.errors import cuda_errors, quietly
from hwbackend.cuda.interface import Array, CudaApi
from hwbackend.cuda.kernels.arguments import (
    FLOAT_NBYTES,
    Argument,
    BlockStamps,
    Input,
    NumberArgument,
    Output,
    Scratch,
    Stamps,
    StreamBuffer,
    WordTable,
)
from hwbackend.cuda.kernels.launches import STREAM_NBYTES, parameters_of, scratch_of, tables_of
from hwbackend.cuda.operators import Launched, Numbers, Values
from simsched.base.units import MIB
from simsched.model.program import COPY, LAUNCH, Program

POISON: Final = 0xFF
"""Byte that buffers are filled with before a run that is checked: four of them are a NaN."""

_ALIGNMENT: Final = 256
_WORD_NBYTES: Final = 8
_UNSET: Final = (2**64 - 1, 0)  # stamps that nobody has lowered or raised


class Region:
    """Buffers behind each other in one allocation, each found by a key."""

    def __init__(self) -> None:
        self._offset: dict[Hashable, int] = {}
        self.nbytes = 0
        self.base = 0

    def add(self, key: Hashable, nbytes: int) -> None:
        """Make room for a buffer."""
        if key not in self._offset:
            self._offset[key] = self.nbytes
            self.nbytes += -(-max(1, nbytes) // _ALIGNMENT) * _ALIGNMENT

    def __contains__(self, key: Hashable) -> bool:
        return key in self._offset

    def __getitem__(self, key: Hashable) -> int:
        return self.base + self._offset[key]


class DeviceBuffers:
    """Buffers on one device.

    Parameters
    ----------
    home
        Operators that run here.
    brought
        Operators whose output is copied here.
    """

    def __init__(self, launched: Sequence[Launched], home: Sequence[int], brought: Sequence[int]) -> None:
        self._launched, self._home = launched, home
        self.outputs, self.constants, self.stamps = Region(), Region(), Region()
        self.padding, self.cold = Region(), Region()
        self.shared = {role: Region() for role in ("source", "sink")}
        for op in (*home, *brought):
            self.outputs.add(op, FLOAT_NBYTES * launched[op].size)
        for op in home:
            launches = launched[op].launches
            for scratch in scratch_of(launches):
                self.outputs.add((op, scratch), scratch.nbytes)
            for parameter in parameters_of(launches):
                self.constants.add((op, parameter), parameter.nbytes)
            for table in tables_of(launches):
                self.constants.add((op, table), _WORD_NBYTES * len(table.entries))
            for launch in launches:
                for argument in launch.arguments:
                    if isinstance(argument, StreamBuffer):
                        self.shared[argument.role].add(argument, STREAM_NBYTES)

    @property
    def regions(self) -> tuple[Region, ...]:
        """All allocations that are needed."""
        wanted = (self.outputs, self.constants, self.stamps, self.padding, self.cold, *self.shared.values())
        return tuple(region for region in wanted if region.nbytes)

    def address(self, op: int, argument: Argument, stamps: int = 0) -> np.generic:
        """Return an argument of an operator as its kernel takes it; `stamps` is the address of the launch's, or 0."""
        if isinstance(argument, np.generic):
            return argument
        return np.uint64(self._address(op, argument, stamps))

    def _address(self, op: int, argument: Argument | int, stamps: int) -> int:
        match argument:
            case Input(index):
                return self.outputs[self._launched[op].sources[index]]
            case Output():
                return self.outputs[op]
            case Scratch():
                return self.outputs[op, argument]
            case NumberArgument() | WordTable():
                return self.constants[op, argument]
            case StreamBuffer(role):
                return self.shared[role][argument]
            case Stamps():
                return stamps
            case BlockStamps() | None:
                return 0
            case _:
                return int(argument)

    def fill(self, numbers: Numbers, write: Callable[[int, Array], None]) -> None:
        """Write parameters and tables."""
        for op in self._home:
            launches = self._launched[op].launches
            for parameter in parameters_of(launches):
                write(self.constants[op, parameter], numbers.parameter(op, parameter))
            for table in tables_of(launches):
                words = [self._address(op, entry, 0) for entry in table.entries]
                write(self.constants[op, table], np.array(words, np.uint64))


class Buffers:
    """Memory of a program on all devices that it uses; a context manager that frees it.

    Parameters
    ----------
    api
        Calls of CUDA.
    program, launched
        What is to run.
    physical
        The GPU of each of the program's devices.
    cold_nbytes
        Bytes of a buffer on each device that `evict` writes; 0 for none.

    Notes
    -----
    The output of an operator is copied whole, whatever an edge says that it needs of it. An edge of more bytes (those
    of synthetic operators stand for a time) moves the others too, from and to a buffer that all copies of a device
    share.
    """

    def __init__(
        self,
        api: CudaApi,
        program: Program,
        launched: Sequence[Launched],
        physical: Sequence[int],
        cold_nbytes: int = 0,
    ) -> None:
        self._api, self._launched, self._physical = api, launched, physical
        self._program = program
        self._stack = ExitStack()
        of_launch = np.empty(len(program.launches), np.int64)
        launches = np.flatnonzero(program.action == LAUNCH)
        of_launch[program.argument[launches]] = program.device[launches]
        self.launch_device: list[int] = of_launch.tolist()
        self.home: list[int] = of_launch[program.launches.ptr[:-1]].tolist()
        copies = program.copies
        self.copied: list[int] = [FLOAT_NBYTES * launched[op].size for op in copies.op.tolist()]
        self.padded: list[int] = [
            max(0, round(nbytes) - copied) for nbytes, copied in zip(copies.nbytes.tolist(), self.copied, strict=True)
        ]
        self.devices: dict[int, DeviceBuffers] = {}
        self._streams: dict[int, int] = {}
        copy_rows = np.flatnonzero(program.action == COPY)
        used = sorted({*self.home, *copies.device.tolist(), *program.device[copy_rows].tolist()})
        ends = [
            (op, self.home[op], target) for op, target in zip(copies.op.tolist(), copies.device.tolist(), strict=True)
        ]
        for device in used:
            brought = [op for op, _, target in ends if target == device]
            home = [op for op, where in enumerate(self.home) if where == device]
            self.devices[device] = DeviceBuffers(launched, home, brought)
            padded = [n for n, end in zip(self.padded, ends, strict=True) if device in end[1:]]
            if any(padded):
                self.devices[device].padding.add("padding", max(padded))
            if cold_nbytes:
                self.devices[device].cold.add("cold", cold_nbytes)
            self._add_stamps(device)

    def _add_stamps(self, device: int) -> None:
        stamps = self.devices[device].stamps
        stamps.add("begin", _WORD_NBYTES)
        for row, where in enumerate(self.launch_device):
            if where == device:
                stamps.add((LAUNCH, row), 2 * _WORD_NBYTES)
        for row, op in enumerate(self._program.copies.op.tolist()):
            if self.home[op] == device:
                stamps.add((COPY, row), 2 * _WORD_NBYTES)

    def __enter__(self) -> "Buffers":
        try:
            for device, buffers in self.devices.items():
                self._allocate(device, buffers)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _allocate(self, device: int, buffers: DeviceBuffers) -> None:
        api = self._api
        api.set_device(self._physical[device])
        self._streams[device] = stream = api.stream(0)
        self._stack.callback(quietly, api.destroy_stream, stream)
        total = sum(region.nbytes for region in buffers.regions) / MIB
        for region in buffers.regions:
            with cuda_errors(f"{self._program.devices[device]}: {total:.0f} MiB are needed"):
                region.base = api.malloc(region.nbytes)
            self._stack.callback(quietly, api.free, region.base)
        for shared in buffers.shared.values():
            if shared.nbytes:
                self._fill(device, shared, 0)

    def fill(self, numbers: Numbers) -> None:
        """Write what does not change: parameters and tables."""
        for device, buffers in self.devices.items():
            self._api.set_device(self._physical[device])
            stream = self._streams[device]
            buffers.fill(numbers, partial(self._write, stream))

    def _write(self, stream: int, address: int, values: Array) -> None:
        self._api.write(address, values, stream)

    def poison(self) -> None:
        """Fill whatever the program writes with NaN."""
        for device, buffers in self.devices.items():
            self._fill(device, buffers.outputs, POISON)

    def evict(self) -> None:
        """Fill the caches with other data, if that is wanted."""
        for device, buffers in self.devices.items():
            if buffers.cold.nbytes:
                self._fill(device, buffers.cold, 0)

    def _fill(self, device: int, region: Region, byte: int) -> None:
        self._api.set_device(self._physical[device])
        self._api.fill(region.base, byte, region.nbytes, self._streams[device])
        self._api.synchronize_stream(self._streams[device])

    def reset_stamps(self) -> None:
        """Set all stamps to what begins and ends change."""
        for device, buffers in self.devices.items():
            self._api.set_device(self._physical[device])
            words = np.array(_UNSET * (buffers.stamps.nbytes // (2 * _WORD_NBYTES)), np.uint64)
            self._api.write(buffers.stamps.base, words, self._streams[device])

    def read_stamps(self, device: int) -> Callable[[Hashable], tuple[int, int]]:
        """Return what finds the two words of a launch or copy of a device, in ns of its clock."""
        region = self.devices[device].stamps
        words = np.empty(region.nbytes // _WORD_NBYTES, np.uint64)
        self._api.set_device(self._physical[device])
        self._api.read(region.base, words, self._streams[device])

        def words_of(key: Hashable) -> tuple[int, int]:
            at = (region[key] - region.base) // _WORD_NBYTES
            return int(words[at]), int(words[at + 1])

        return words_of

    def outputs(self, op: int) -> list[tuple[int, Values]]:
        """Return the output of an operator on each device that has it, the one that wrote it first."""
        found = []
        others = [device for device in self.devices if device != self.home[op]]
        for device in (self.home[op], *others):
            buffers = self.devices[device]
            if op in buffers.outputs:
                values = np.empty(self._launched[op].size, np.float32)
                self._api.set_device(self._physical[device])
                self._api.read(buffers.outputs[op], values, self._streams[device])
                found.append((device, values))
        return found
