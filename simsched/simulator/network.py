"""Links and copy engines in the reference engine: what `links` says, when SimPy says so."""

from collections.abc import Callable, Sequence

from simsched.simulator.environment import COMPLETE, SHARE, Alarm, Instants
from simsched.simulator.gpu import Gpu
from simsched.simulator.links import begin_flow, end_due_flows, share_flows, take_loads
from simsched.simulator.state import State


class Network:
    """All flows between devices.

    A copy is driven by its source's copy engines: each moves at most `copy_rate`, all of them
    together at most ``copy_engines * copy_rate``. At the end of an instant in which a flow began
    or ended the rates are computed anew, and with them the DRAM loads at both ends.
    """

    def __init__(self, env: Instants, state: State, gpus: Sequence[Gpu]) -> None:
        self._env, self._s, self._gpus = env, state, gpus
        self._done: dict[int, Callable[[], object]] = {}  # by lane
        self._timer = Alarm(env, COMPLETE, self._end_flows)
        self._sharing = Alarm(env, SHARE, self._share)

    def start(self, lane: int, copy: int, done: Callable[[], object]) -> None:
        """Begin to move the bytes of a copy of a lane; `done` is called when all have arrived."""
        begin_flow(self._s, lane, copy)
        self._done[lane] = done
        self._sharing.set_now()

    def _share(self) -> None:
        s = self._s
        s.now = self._env.now
        self._timer.set(max(share_flows(s), s.now))
        for d in s["over"][: take_loads(s)].tolist():
            self._gpus[d].dispatch.set_now()

    def _end_flows(self) -> None:
        s = self._s
        s.now = self._env.now
        for lane in s["over"][: end_due_flows(s)].tolist():
            self._done[lane]()
        self._sharing.set_now()
