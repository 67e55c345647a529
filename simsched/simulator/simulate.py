"""From a program to a trace, and to the makespans of many simulations at once.

Over the jitter of operator times, of many schedules, and on clusters of other numbers.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from simsched.base.codec import Checked
from simsched.base.errors import MissingDependencyError, SimschedError, SimulationError, UnknownNameError
from simsched.base.limits import require_count
from simsched.base.views import as_html
from simsched.model import Cluster, CostModel, Floats, Program, Schedule, Target, bind
from simsched.model.trace import Trace
from simsched.simulator.demand import Jitter, demand, factors, launch_devices
from simsched.simulator.layout import Array, Layout, launches_of, layout_of

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_BYTES: Final = 2**26  # of the factors of all chunks that wait or run
_LEAST_WORK: Final = 2**14  # instructions in a chunk: about 1 ms
_MOST_WORK: Final = 2**21  # some tenths of a second
_CHUNKS: Final = 4  # per worker, so that none is idle for long at the end
_ENGINES: Final = ("auto", "compiled", "reference")


def simulate(
    schedule: Schedule | Program,
    cluster: Target,
    cost: CostModel | None = None,
    *,
    jitter: Jitter | None = None,
    rng: np.random.Generator | int | None = None,
    engine: str = "auto",
) -> Trace:
    """Return the trace of a simulation: the times at which kernels, copies and hosts run.

    Parameters
    ----------
    schedule
        A schedule, lowered with the default options of `Schedule.lower`, or a program.
    cluster
        A cluster, or a calibration, whose times of operators and fitted parameters are taken.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    jitter
        Run-to-run variation: the standard deviation of an operator's time over its mean, for all
        operators or by name. Each operator's time is multiplied by a log-normal factor of mean 1,
        drawn in graph order.
    rng
        Generator or seed, required with `jitter`.
    engine
        ``"compiled"``: machine code, made when it is first needed on a machine (half a second) and
        kept on disk; ``"reference"``: the same model on SimPy, the executable specification, some
        hundred times slower; ``"auto"`` takes the compiled one. They agree to 1e-9.

    Returns
    -------
    Trace

    Raises
    ------
    ScheduleError
        If the schedule cannot run (see `Schedule.check`).
    DeadlockError
        If a program waits for ever; the message names the waits.
    SimulationError
        If `jitter` is out of range or comes without `rng`, or the cluster lacks a device.
    ClusterError
        If a kernel fits no SM, or no links join two devices that exchange data.

    Notes
    -----
    The model is leftover dispatch with fluid rate sharing, see ``docs/model.md``.
    A kernel alone on an idle device takes exactly its share of its operator's time. O(E log E) for E
    instructions, plus an event per wave of blocks while two kernels interleave.

    References
    ----------
    .. [1] Amert, Otterness, Yang, Anderson, Smith, "GPU scheduling on the NVIDIA TX2: hidden
       details revealed", RTSS 2017, doi:10.1109/RTSS.2017.00017 (dispatch rules).
    """
    schedule, cluster = bind(schedule, cluster)
    program = program_for(schedule, cluster)
    if engine not in _ENGINES:
        raise UnknownNameError("engine", engine, list(_ENGINES))
    if jitter is None:
        drawn = None
    else:
        drawn = factors(program.graph, jitter, rng, 1)
    layout = layout_of(program, cluster)
    launches = launches_of(layout, cost)
    if engine == "reference":
        try:
            from simsched.simulator.reference import Reference
        except ImportError:
            raise MissingDependencyError("the reference engine needs SimPy: pip install simpy") from None

        return Reference(program, layout, launches, drawn).run()
    makespan = float(layout.makespans(launches, drawn)[0])
    return Trace.deferred(program, cluster, makespan, lambda: layout.trace_columns(launches, drawn))  # by a second run


def program_for(schedule: Schedule | Program, cluster: Cluster) -> Program:
    """Return the program of a schedule on a cluster, with the kernels that libraries choose there.

    One that was made for devices of other names, or for other numbers of kernels, is refused.
    """
    if isinstance(schedule, Program):
        program = schedule
    else:
        program = schedule.lower(cluster)
    names = tuple(device.name for device in cluster.devices)
    if program.devices != names:
        raise SimulationError(f"the program was made for devices {', '.join(program.devices)}, not {', '.join(names)}")
    if program is schedule:
        return program.on(cluster)
    return program


@dataclass(frozen=True, eq=False)
class Makespans(Checked):
    """Simulated makespans in us, in the order in which they were drawn; shape (n,)."""

    SUBJECT = "makespans"
    ERROR = SimulationError
    values: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Makespans) and np.array_equal(self.values, other.values)

    def __len__(self) -> int:
        return len(self.values)

    _repr_html_ = as_html

    def percentile(self, q: float) -> float:
        """Return the makespan in us that `q` per cent of the samples do not exceed (linear interpolation)."""
        return float(np.percentile(self.values, q))

    @property
    def p50(self) -> float:
        """Median in us."""
        return self.percentile(50)

    @property
    def p95(self) -> float:
        """95th percentile in us."""
        return self.percentile(95)

    @property
    def p99(self) -> float:
        """99th percentile in us."""
        return self.percentile(99)

    @property
    def mean(self) -> float:
        """Mean in us."""
        return float(self.values.mean())

    @property
    def std(self) -> float:
        """Standard deviation in us."""
        return float(self.values.std())


def simulate_many(
    schedule: Schedule | Program,
    cluster: Target,
    n: int,
    cost: CostModel | None = None,
    *,
    jitter: Jitter,
    rng: np.random.Generator | int,
    workers: int = 1,
) -> Makespans:
    """Return the makespans of `n` simulations with operator times drawn anew for each.

    Sample k is the makespan of the k-th of `n` successive calls of `simulate` with the same
    Generator, without its spans and without preparing the program each time.

    Parameters
    ----------
    schedule, cluster, cost, jitter
        As in `simulate`.
    n
        Number of samples.
    rng
        Generator or seed. A Generator is advanced by `n` draws.
    workers
        Threads that simulate at a time; the samples are the same for any number.

    Returns
    -------
    Makespans
        In us, shape (n,).

    Raises
    ------
    ScheduleError, DeadlockError, ClusterError
        As `simulate` does.
    SimulationError
        If `n` or `workers` is no whole number of at least 1, `jitter` is missing or out of range,
        `rng` is missing, or the cluster lacks a device.

    Notes
    -----
    O(n E log E) for E instructions. Memory: the samples, a run per worker, and at most 64 MB of
    random numbers at a time (or the numbers of two samples per worker, if they are more).

    >>> import simsched as ss
    >>> graph, cluster = ss.OpGraph([ss.Operator("a", time=10.0)]), ss.Cluster.preset("a100").without_overheads()
    >>> plan = ss.schedule(graph, cluster, "lios")
    >>> drawn = ss.simulate_many(plan, cluster, 2000, jitter=0.1, rng=0)
    >>> round(drawn.mean), round(drawn.std)
    (10, 1)
    """
    require_samples("n", n, workers, jitter, rng)
    schedule, cluster = bind(schedule, cluster)
    layout = layout_of(program_for(schedule, cluster), cluster)
    launches = launches_of(layout, cost)
    generator = np.random.default_rng(rng)
    # samples of a chunk: few enough that an interruption ends within some tenths of a second, that all workers have
    # something to do, and that their random numbers take little memory; enough to make the hand-over cheap
    work = max(1, len(layout.program))
    nbytes = 8 * len(layout.program.graph)
    if workers > 1:
        even = -(-n // (_CHUNKS * workers))
    else:
        even = n
    most = min(_MOST_WORK // work, _MOST_BYTES // (2 * workers * nbytes))
    rows = max(1, min(most, max(even, _LEAST_WORK // work)))
    drawn = (factors(layout.program.graph, jitter, generator, min(rows, n - start)) for start in range(0, n, rows))
    values = np.concatenate(list(_in_order(lambda some: layout.makespans(launches, some), drawn, workers)))
    del layout.spare[1:]
    return Makespans(values)


def simulate_batch(
    schedules: Sequence[Schedule | Program], cluster: Target, cost: CostModel | None = None, *, workers: int = 1
) -> Floats:
    """Return the makespan of each of many schedules, as `simulate` would find it.

    Parameters
    ----------
    schedules
        Schedules, lowered with the default options of `Schedule.lower`, or programs; of one graph or
        of several.
    cluster, cost
        As in `simulate`; with more than one worker `cost` is called by several threads at a time.
    workers
        Threads that lower and simulate at a time; the result is the same for any number.

    Returns
    -------
    ndarray
        Makespans in us, shape (n_schedules,).

    Raises
    ------
    ScheduleError, DeadlockError, ClusterError, CostError
        As `simulate` does, for the first schedule that cannot run; the message begins with its
        number, counted from 0.
    SimulationError
        If `workers` is no whole number of at least 1, or the cluster lacks a device.

    Notes
    -----
    O(E log E) for each schedule of E instructions.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=3.0), ss.Operator("b", time=5.0)])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> plans = [ss.schedule(graph, cluster, "round-robin", streams=n) for n in (1, 2)]
    >>> ss.simulate_batch(plans, cluster).tolist()
    [8.0, 5.0]
    """
    require_count(SimulationError, workers=workers)

    def run(place: int) -> float:
        try:
            schedule, bare = bind(schedules[place], cluster)
            layout = Layout(program_for(schedule, bare), bare)  # thousands of them: none is kept
            return float(layout.makespans(launches_of(layout, cost))[0])
        except SimschedError as error:
            error.args = (f"schedule {place}: {error}",)
            raise

    return np.fromiter(_in_order(run, range(len(schedules)), workers), np.float64, len(schedules))


def require_samples(name: str, n: Any, workers: Any, jitter: Jitter | None, rng: Any) -> Jitter:
    """Refuse arguments with which no samples can be drawn, naming the number of samples; return the jitter."""
    require_count(SimulationError, **{name: n}, workers=workers)
    if jitter is None:
        raise SimulationError("samples without jitter would all be alike: pass `jitter`, such as 0.02")
    if rng is None:
        raise SimulationError("samples are random: pass `rng`, a numpy Generator or a seed")
    return jitter


def _in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Give the results of a function for each item in order, several of them worked on at a time."""
    if workers == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(workers)
    waiting = deque[Future[Result]]()
    try:
        for item in items:
            if len(waiting) == 2 * workers:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def simulate_worlds(programs: Sequence[Program], worlds: Sequence[tuple[Cluster, CostModel]]) -> Floats:
    """Return the makespan of each program in each world in us, shape (n_programs, n_worlds).

    Parameters
    ----------
    programs
        Made for the devices that every world has, by name.
    worlds
        Clusters, and how long operators take there: cost models that answer for many at once.

    Raises
    ------
    DeadlockError, ClusterError, CostError
        As `simulate` does.

    Notes
    -----
    Demand of launches is computed once for all programs that run the same graph, with equal priorities, on equal
    devices. O(P W E log E) for P programs of E instructions and W worlds.
    """
    found = np.empty((len(programs), len(worlds)))
    devices = [launch_devices(program) for program in programs]
    if worlds:
        plans = [Layout(program, worlds[0][0]) for program in programs]
    else:
        plans = []
    for j, (cluster, cost) in enumerate(worlds):
        asked: dict[tuple[int, bytes, bytes], Array] = {}
        for i, (program, device) in enumerate(zip(programs, devices, strict=True)):
            if program.graph.meetings:
                places = device
            else:
                places = cluster.kind[device]
            key = id(program.graph), places.tobytes(), program.priority.tobytes()
            if key not in asked:
                asked[key] = demand(program, cluster, cost)
            plans[i].move(cluster)
            found[i, j] = plans[i].makespans(asked[key])[0]
    return found
