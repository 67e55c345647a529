"""The SMs of a cluster with the blocks on them, as a run sees them."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hwbackend.synthetic.blocks import ADVANCE, ARRIVE, NEVER, RESHARE, ROOM, BlockRun, run_blocks
from simsched.model import WARP, Device, Floats, Ints


class Sms:
    """The SMs of some devices, for whose blocks kernels queue.

    Parameters
    ----------
    devices
        Their limits.
    columns
        Of the launches: device, priority, warps, registers, shared, issue and dram of `blocks.Launch`, shape
        (n_launches,) each.
    blocks
        Of each launch, shape (n_launches,).
    interference
        Slowdown of blocks beside blocks of another kernel on an SM where something is short.

    Attributes
    ----------
    next
        When next a block ends on each device in us, shape (n_devices,).
    """

    def __init__(
        self, devices: Sequence[Device], columns: Mapping[str, npt.ArrayLike], blocks: Ints, interference: float
    ) -> None:
        n_sms = [device.sms for device in devices]
        self._run = run = BlockRun(
            n_devices=len(devices),
            n_sms=sum(n_sms),
            n_launches=len(blocks),
            interference=interference,
            n_leaves=1 << (max(n_sms) - 1).bit_length(),
            n_slots=max(device.blocks_per_sm for device in devices),
            resident_kernels=min(device.resident_kernels for device in devices),
        )
        self._launches = run["launches"]
        self._devices = run["devices"]
        sms = run["sms"]
        for name, values in columns.items():
            self._launches[name] = values
        self._launches["start"] = self._launches["end"] = -1.0
        self._launches["unissued"] = blocks
        self._devices["first_sm"] = np.cumsum([0, *n_sms[:-1]])
        self._devices["n_sms"] = n_sms
        self._devices["slow"] = 1.0
        self._devices["next"] = NEVER
        self._devices["stuck"] = -1
        self.next: Floats = self._devices["next"]
        for name in ("blocks", "registers", "shared"):
            if name == "shared":
                of = "shared_memory"
            else:
                of = name
            sms[name] = np.repeat([getattr(device, f"{of}_per_sm") for device in devices], n_sms)
        sms["warps"] = np.repeat([device.threads_per_sm // WARP for device in devices], n_sms)
        run["due"].fill(NEVER)
        self._fill_room(sms["warps"] * ROOM + sms["blocks"])
        self._fresh = {name: run[name].copy() for name in ("launches", "devices", "sms", "room", "due")}

    def _fill_room(self, free: Ints) -> None:
        """Put the room of each SM into the leaves of the trees, and the best of it above."""
        leaves = self._run.n_leaves
        trees = self._run["room"].reshape(-1, 2 * leaves)
        trees.fill(-1)
        for tree, device in zip(trees, self._devices, strict=True):
            tree[leaves : leaves + device["n_sms"]] = free[device["first_sm"] :][: device["n_sms"]]
            for i in range(leaves - 1, 0, -1):
                tree[i] = max(tree[2 * i], tree[2 * i + 1])

    def clear(self, jitter: Floats) -> None:
        """Take everything off and go back to time 0; blocks will take `jitter` of their time, one after the other."""
        for name, column in self._fresh.items():
            self._run[name][:] = column
        self._run["jitter"] = jitter
        self._run.n_jitter = len(jitter)
        self._run.next_jitter = 0

    @property
    def spans(self) -> Floats:
        """Start and end in us of each launch, shape (n_launches, 2); -1 for what has not happened."""
        return np.column_stack([self._launches["start"], self._launches["end"]])

    def arrive(self, row: int, now: float, compute: float, memory: float) -> None:
        """Queue a launch whose blocks compute and read for so many us."""
        launch = self._launches[row]
        launch["compute"] = compute
        launch["memory"] = memory
        launch["arrival"] = now
        self._call(ARRIVE, row, now)

    def advance(self, until: float) -> tuple[float, list[int]]:
        """Run to a time or the first end of kernels before it; return when that was and the launches that ended."""
        run = self._run
        run.until = until
        run.phase = ADVANCE
        run_blocks(run)
        ended = run["ended"][: run.n_ended].tolist()
        return run.now if ended else until, ended

    def set_copy_load(self, device: int, now: float, part: float) -> None:
        """Let copies take a part of a device's DRAM from now on."""
        self._devices["copied"][device] = part
        self._call(RESHARE, device, now)

    def _call(self, phase: int, subject: int, now: float) -> None:
        run = self._run
        run.now = now
        run.phase = phase
        run.subject = subject
        run_blocks(run)
