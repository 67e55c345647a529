"""The SMs of a cluster with the blocks on them: columns in memory, and calls of the machine code that works on them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hwbackend.surrogate import layout
from simsched import machine_code
from simsched.cluster import WARP, Device
from simsched.graph.columns import Floats, Ints

_HERE: Final = Path(__file__).parent
_SOURCES: Final = (
    _HERE / "blocks.py", _HERE / "layout.py", Path(machine_code.__file__).with_name("machine_columns.py"),
)  # fmt: skip
_NEVER: Final = 1e300


class Sms:
    """The SMs of some devices, for whose blocks kernels queue.

    Parameters
    ----------
    devices
        Their limits.
    columns
        Of the launches: DEVICE, PRIORITY, WARPS, REGISTERS, SHARED and ISSUE of `layout`, shape (n_launches,) each.
    blocks
        Of each launch, shape (n_launches,).
    interference
        Slowdown of blocks beside those of another kernel on an SM where something is short.
    """

    def __init__(
        self, devices: Sequence[Device], columns: Mapping[int, npt.ArrayLike], blocks: Ints, interference: float
    ) -> None:
        self._run = machine_code.load("hwbackend.surrogate.blocks:run_blocks", _SOURCES, "surrogate device")
        sms, n = [device.sms for device in devices], len(blocks)
        leaves = 1 << (max(sms) - 1).bit_length()
        most = max(device.blocks_per_sm for device in devices)
        self._device, self._blocks = devices, blocks
        self._column: dict[int, npt.NDArray[Any]] = {
            layout.SM_START: np.concatenate([[0], np.cumsum(sms)]),
            layout.QUEUE: np.zeros(len(devices) * n, np.int64),
            layout.ROOM: np.zeros(2 * leaves * len(devices), np.int64),
            layout.DUE: np.zeros(2 * leaves * len(devices)),
            layout.NUMBERS: np.array([0.0, 0.0, interference]),
        }
        for keys, length in (
            (layout.BY_DEVICE, len(devices)), (layout.BY_SM, sum(sms)), (layout.BY_SLOT, most * sum(sms)),
            (layout.BY_ROW, n),
        ):  # fmt: skip
            for key in keys:
                self._column[key] = np.zeros(length, np.float64 if key >= layout.FIRST_FLOATS else np.int64)
        for key, values in columns.items():
            self._column[key][:] = values
        self._table = table = np.zeros(layout.SIZE, np.int64)
        table[layout.N_DEVICES], table[layout.MOST_SMS] = len(devices), leaves
        table[layout.MOST_BLOCKS], table[layout.N_ROWS] = most, n
        table[layout.RESIDENT_KERNELS] = min(device.resident_kernels for device in devices)
        for key, column in self._column.items():
            table[key] = _address(column)
        self._at = _address(table)
        self._numbers, self.next = self._column[layout.NUMBERS], self._column[layout.NEXT]
        self._compute, self._memory, self._arrival = (
            self._column[key] for key in (layout.COMPUTE, layout.MEMORY, layout.ARRIVAL)
        )

    def clear(self, jitter: Floats) -> None:
        """Take everything off and go back to time 0; blocks will take `jitter` of their time, one after the other."""
        column = self._column
        for key in (layout.RESIDENT, layout.N_QUEUED, layout.N_RUNNING, layout.N_HELD, layout.N_DIRTY, layout.IS_DIRTY,
                    layout.TRAFFIC, layout.COPIED, layout.SINCE, layout.SM_TRAFFIC):  # fmt: skip
            column[key].fill(0)
        for key, field in (
            (layout.FREE_WARPS, "threads_per_sm"), (layout.FREE_BLOCKS, "blocks_per_sm"),
            (layout.FREE_REGISTERS, "registers_per_sm"), (layout.FREE_SHARED, "shared_memory_per_sm"),
        ):  # fmt: skip
            column[key][:] = np.repeat(
                [getattr(device, field) for device in self._device], [device.sms for device in self._device]
            )
        column[layout.FREE_WARPS] //= WARP
        column[layout.STUCK].fill(-1)
        self._clear_room()
        column[layout.UNISSUED][:] = self._blocks
        column[layout.SLOW].fill(1.0)
        column[layout.NEXT].fill(_NEVER)
        column[layout.DUE].fill(_NEVER)
        column[layout.START].fill(-1.0)
        column[layout.END].fill(-1.0)
        column[layout.JITTER] = jitter
        self._table[layout.JITTER] = _address(jitter)
        self._table[layout.N_JITTER], self._table[layout.NEXT_JITTER] = len(jitter), 0

    def _clear_room(self) -> None:
        """Let every SM have all its room, in the leaves of the tree and above."""
        column, leaves = self._column, int(self._table[layout.MOST_SMS])
        free = column[layout.FREE_WARPS] * layout.SHIFT + column[layout.FREE_BLOCKS]
        trees = column[layout.ROOM].reshape(-1, 2 * leaves)
        trees.fill(-1)
        starts = column[layout.SM_START].tolist()
        for tree, first, last in zip(trees, starts[:-1], starts[1:], strict=True):
            tree[leaves : leaves + last - first] = free[first:last]
            for i in range(leaves - 1, 0, -1):
                tree[i] = max(tree[2 * i], tree[2 * i + 1])

    @property
    def spans(self) -> Floats:
        """Start and end in us of each launch, shape (n_launches, 2); -1 for what has not happened."""
        return np.column_stack([self._column[layout.START], self._column[layout.END]])

    def arrive(self, row: int, now: float, compute: float, memory: float) -> None:
        """Queue a launch whose blocks compute and read for so many us."""
        self._compute[row], self._memory[row], self._arrival[row] = compute, memory, now
        self._call(layout.ARRIVE, row, now)

    def advance(self, until: float) -> tuple[float, list[int]]:
        """Run to a time or the first end of kernels before it; return when that was and the launches that ended."""
        self._numbers[layout.UNTIL] = until
        self._table[layout.PHASE] = layout.ADVANCE
        self._run(self._at)
        ended = self._column[layout.ENDED][: self._table[layout.N_ENDED]].tolist()
        return float(self._numbers[layout.NOW]) if ended else until, ended

    def copied(self, device: int, now: float, part: float) -> None:
        """Let copies take a part of a device's DRAM from now on."""
        self._column[layout.COPIED][device] = part
        self._call(layout.RESHARE, device, now)

    def _call(self, phase: int, row: int, now: float) -> None:
        self._numbers[layout.NOW] = now
        self._table[layout.PHASE], self._table[layout.ROW] = phase, row
        self._run(self._at)


def _address(column: npt.NDArray[Any]) -> int:
    address: int = column.__array_interface__["data"][0]
    return address
