"""Runs: the memory of simulations one after the other, and what they leave."""

from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import DeadlockError, SimulationError
from simsched.model import Floats, Program
from simsched.model.trace import Load
from simsched.simulator.compiled.loop import MOST_POINTS, run_samples
from simsched.simulator.deadlock import deadlock
from simsched.simulator.state import FULL, NEW, OVER, RUNNING, Point, Span, State

Array = npt.NDArray[Any]
_CURVE: Final = ("time", "sm", "dram", "warps", "active")


def begin_curves(s: State, room: int) -> None:
    """Let load curves be recorded, with room for so many points at first, beside one for each device."""
    s["points"], s.point_room, s.recording = np.empty(room + s.n_devices, Point.dtype), room + s.n_devices, 1


def enlarge(s: State) -> None:
    """Make room for more points of load curves."""
    s["points"] = np.concatenate([s["points"], np.empty(3 * s.point_room, Point.dtype)])
    s.point_room *= 4


def curves_of(s: State) -> list[Load]:
    """Return the load curves of all devices as they were recorded."""
    points = s["points"][: s.n_points]
    curves = [points[points["device"] == d] for d in range(s.n_devices)]
    return [Load(*(np.ascontiguousarray(curve[name]) for name in _CURVE)) for curve in curves]


class Memory:
    """One run after the other in the memory of a state; not for two threads at once.

    Parameters
    ----------
    state
        Where they run.
    program
        What is run; None: what waits for nothing.

    Attributes
    ----------
    stopped
        Set by another thread, it ends a run at the next look, with a `SimulationError`.
    """

    def __init__(self, state: State, program: Program | None = None) -> None:
        self.state, self._program, self.stopped = state, program, False

    def makespans(self, launches: Array, factors: Floats | None = None) -> Floats:
        """Return the makespan in us of each sample.

        Parameters
        ----------
        launches
            From `demand`.
        factors
            Of the time of each operator, shape (n_samples, n_ops); None: one sample of the times as they are.

        Raises
        ------
        DeadlockError
            If something is left that nothing will ever release.
        """
        found = self._begin(launches, factors)
        if self._go_on() != OVER:
            raise self._deadlock()
        return found

    def makespan(self, launches: Array) -> float:
        """Return the makespan in us, or inf if the program waits for ever."""
        self._begin(launches, None)
        return self.again()

    def again(self) -> float:
        """Return what `makespan` would, of the same launches: the quickest way to run once more."""
        self.state.status = NEW
        return self.state.makespan if self._go_on() == OVER else inf

    def trace_columns(self, launches: Array, factors: Floats | None = None) -> tuple[dict[str, Array], list[Load]]:
        """Return the spans by columns and the load curves of a run; parameters and errors are those of `makespans`."""
        state = self.state
        self._begin(launches, factors)
        begin_curves(state, 2 * MOST_POINTS + 2 * len(launches))
        state["spans"] = np.empty(4 * state.n_instructions + 1, Span.dtype)  # three each, and one of what is issued
        while self._go_on() == FULL:
            enlarge(state)
        state.recording = 0
        spans, curves = state["spans"][: state.n_spans], curves_of(state)
        state["spans"] = state["points"] = None
        if state.status != OVER:
            raise self._deadlock()
        columns = {name: np.ascontiguousarray(spans[name]) for name in Span.dtype.names or ()}
        return columns, curves

    def _deadlock(self) -> DeadlockError:
        """Return what the program waits for, as an error."""
        assert self._program is not None
        lanes = self.state["lanes"]
        stuck = lanes[lanes["head"] < lanes["tail"]]
        waiting = self.state["items"]["code"][stuck["head"]] >> 2
        held = list(zip(stuck["stream"].tolist(), waiting.tolist(), strict=True))
        n = self.state.n_events
        issued = self.state["events"]["time"][n : 2 * n] < inf
        return deadlock(self._program, self.state["hosts"]["at"].tolist(), held, issued.tolist())

    def _begin(self, launches: Array, factors: Floats | None) -> Floats:
        """Set all up for samples; return where their makespans will stand."""
        state = self.state
        found = np.empty(1 if factors is None else len(factors))
        state["launches"], state["makespans"] = launches, found
        state.n_samples, state.jittered = len(found), factors is not None
        if factors is not None:
            state["factors"] = factors
        state.status = NEW
        return found

    def _go_on(self) -> int:
        """Run to the end, or until the points are full; return the status."""
        state, status = self.state, RUNNING
        while status == RUNNING:  # its budget of events is over
            run_samples(state)
            status = state.status
            if self.stopped:
                raise SimulationError("the simulation was stopped")
        return status
