"""The device of a contact: what the sections measure with, and the adapter for any backend.

A device that cannot do something raises `UnsupportedError`; the item is then missing with that reason.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from hwbackend.contact.clocks import DeviceState, state_of_gpu
from simsched.base.errors import BackendError
from simsched.model import Cluster, Kernel, Schedule
from simsched.model.backend import Backend
from simsched.model.profile import Replay

FAKE: Final = "fake"
_WARMUPS: Final = 64  # most runs before the measured ones: a short schedule fills the time of warming up with more


class UnsupportedError(BackendError):
    """Something that a device cannot measure."""


class Timing(NamedTuple):
    """A schedule that ran: a replay, and the us that its host took to issue each repeat, if that is known."""

    replay: Replay
    issue: tuple[float, ...] | None


class StampedBlock(NamedTuple):
    """A block of a kernel: the place of its operator in the graph, its SM, and us when it started and ended."""

    op: int
    sm: int
    start: float
    end: float


class Session(NamedTuple):
    """A profiler session: how many kernels it reports, and how many of them with the id of their graph node."""

    kernels: int
    nodes: int


class Halves(NamedTuple):
    """Two kernels of a block an SM: us on two streams, and on two parts of the SMs; the SMs of these parts."""

    shared: float
    apart: float
    sms: tuple[int, int]


class ContactDevice(Protocol):
    """A device as the sections of a contact use it.

    Attributes
    ----------
    name
        The name of its backend.
    virtual
        Whether its seconds are simulated ones.
    backend
        Runs networks; see `Backend`.
    """

    name: str
    virtual: bool

    @property
    def backend(self) -> Backend:
        """The backend that runs networks and operators."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The device as it is known before anything is measured."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return versions and limits as the driver reports them; limits have the names of fields of `Device`."""
        ...

    def seconds(self) -> float:
        """Return s since an arbitrary time."""
        ...

    def state(self) -> DeviceState | None:
        """Return the condition of the device, None if no driver reports it."""
        ...

    def idle(self, seconds: float) -> None:
        """Leave the device without work."""
        ...

    def run(self, plan: Schedule, repeats: int, *, warm: float = 0.0) -> Timing:
        """Run a schedule for `warm` s unmeasured, then `repeats` times measured, without a profiler where possible."""
        ...

    def blocks(self, plan: Schedule) -> list[StampedBlock]:
        """Run a schedule of synthetic operators once; return its blocks in the order of their operators."""
        ...

    def tick(self) -> float:
        """Return the us between two values of the timer with which blocks are stamped."""
        ...

    def fma(self, warps: int, chains: int) -> float:
        """Return us of one block an SM of some warps, of which each thread has some independent chains of FMAs.

        All warps issue the same number of FMAs, however many chains they are in.
        """
        ...

    def occupancies(self) -> list[tuple[Kernel, int]]:
        """Return kernels, and how many blocks of each an SM holds as the driver counts."""
        ...

    def copy(self, nbytes: float, ways: Sequence[str]) -> float:
        """Return us of copies that are issued together: ``"in"`` from the host, ``"out"`` to it."""
        ...

    def matmul(self, dtype: str) -> float:
        """Return FLOP per us of a large matrix product."""
        ...

    def beside(self, first: str, second: str) -> tuple[float, float, float]:
        """Return us of two captured chains of kernels, each bound by a unit of `sharing.UNITS`: alone, and together."""
        ...

    def chain(self, *, programmatic: bool) -> float:
        """Return the us from the start of a kernel in a chain on one stream to the start of the next.

        With `programmatic` a kernel may be launched before the one before it has ended.
        """
        ...

    def halves(self) -> Halves:
        """Run two kernels on two streams, and on two parts of the SMs, of which the first is half or a little more."""
        ...

    def profile_once(self, plan: Schedule) -> Session:
        """Run a schedule once under the profiler."""
        ...


class BackendDevice:
    """Any backend as a device of a contact: it runs schedules, and can do nothing beside that.

    Parameters
    ----------
    backend
        Runs and measures schedules.
    """

    virtual = False

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name
        self._facts: Mapping[str, str] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster of the backend."""
        return self.backend.cluster

    def facts(self) -> dict[str, Any]:
        """Return the environment of the last replay, or nothing before the first one."""
        return dict(self._facts)

    def seconds(self) -> float:
        """Return s since an arbitrary time."""
        return time.monotonic()

    def state(self) -> DeviceState | None:
        """Return the condition of the first GPU if the driver of NVIDIA reports one and the backend may be on it."""
        return None if self.name in ("synthetic", "recorded") else state_of_gpu()

    def idle(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def run(self, plan: Schedule, repeats: int, *, warm: float = 0.0) -> Timing:
        """Replay a schedule; it is warmed up by as many runs as its first one fits into the time."""
        warmup = 1
        if warm > 0.0:
            begun = self.seconds()
            once = self.backend.replay(plan, repeats=1, warmup=0)
            left = warm - (self.seconds() - begun)
            warmup = int(max(1.0, min(_WARMUPS, left / max(once.median * 1e-6, 1e-6))))
        replay = self.backend.replay(plan, repeats=repeats, warmup=warmup)
        self._facts = replay.environment
        return Timing(replay, None)

    def blocks(self, plan: Schedule) -> list[StampedBlock]:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("stamps of blocks")

    def tick(self) -> float:
        """Refuse."""
        raise self._refusal("the timer")

    def fma(self, warps: int, chains: int) -> float:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("kernels of chains of FMAs")

    def occupancies(self) -> list[tuple[Kernel, int]]:
        """Refuse."""
        raise self._refusal("occupancy")

    def copy(self, nbytes: float, ways: Sequence[str]) -> float:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("copies to and from the host")

    def matmul(self, dtype: str) -> float:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("large matrix products")

    def beside(self, first: str, second: str) -> tuple[float, float, float]:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("kernels bound by one unit")

    def chain(self, *, programmatic: bool) -> float:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("programmatic launches")

    def halves(self) -> Halves:
        """Refuse."""
        raise self._refusal("green contexts")

    def profile_once(self, plan: Schedule) -> Session:  # noqa: ARG002
        """Refuse."""
        raise self._refusal("what a profiler sees")

    def _refusal(self, wanted: str) -> UnsupportedError:
        return UnsupportedError(f"backend {self.name!r} does not measure {wanted}: a contact with a GPU and CuPy does")
