"""A GPU in the reference engine: what `device` says, when SimPy says so."""

from collections.abc import Callable

from simsched.simulator.compiled.memory import enlarge
from simsched.simulator.contention import begin_kernel
from simsched.simulator.device import LEAST_UNIT, end_due, enter, refill, set_up
from simsched.simulator.environment import COMPLETE, DISPATCH, Alarm, Instants
from simsched.simulator.state import State


class Gpu:
    """The execution engine of device `d`, driven by SimPy through `submit`.

    At the end of an instant (phase DISPATCH) the block scheduler issues what fits, loads and rates
    are computed, and one timer is set to the next end of a cohort.
    """

    def __init__(self, env: Instants, state: State, d: int) -> None:
        self._env, self._s, self._d = env, state, d
        self._done: dict[int, Callable[[float], object]] = {}  # by lane
        self._timer = Alarm(env, COMPLETE, self._end_cohorts)
        self.dispatch = Alarm(env, DISPATCH, self._dispatch)

    def submit(self, row: int, lane: int, place: int, done: Callable[[float], object]) -> None:
        """Take a launch of a lane, the instruction at `place`; `done(start)` is called when it ends."""
        s, now = self._s, self._env.now
        s.now = now
        set_up(s, row, lane, self._d, place)
        launch, work = s.launches[row], s.work[lane]
        self._done[lane] = done
        if not s.devices[self._d].contention or (launch.blocks == 0 and launch.sm_share == 0.0):
            self._env.at(now + work.solo, COMPLETE, lambda: done(now))
        elif work.unit < LEAST_UNIT:
            self._end_kernel(lane, now)
        else:
            begin_kernel(work, launch.blocks)
            enter(s, self._d, lane)
            self.dispatch.set_now()

    def _end_kernel(self, lane: int, start: float) -> None:
        """Let a kernel end, all of whose blocks have."""
        done, latency = self._done[lane], self._s.work[lane].latency
        if latency > 0:
            self._env.at(self._env.now + latency, COMPLETE, lambda: done(start))
        else:
            done(start)

    def _dispatch(self) -> None:
        s = self._s
        s.now = self._env.now
        if s.n_points == s.point_room:
            enlarge(s)
        self._timer.set(max(refill(s, self._d), s.now))

    def _end_cohorts(self) -> None:
        s = self._s
        s.now = self._env.now
        for lane in s["over"][: end_due(s, self._d)].tolist():
            self._end_kernel(lane, s.work[lane].start)
        self.dispatch.set_now()
