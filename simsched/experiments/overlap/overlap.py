"""`overlap`: simulate every overlap of a graph, and rank them by their gains."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.experiments.overlap.results import WORTH, Overlap, Overlaps, Point, Shares, Turn
from simsched.experiments.overlap.trials import EXECUTIONS, Load, Trial, TrialBench, halves_of
from simsched.experiments.overlap.turns import point, turn
from simsched.experiments.ranges import Ranged
from simsched.model import CostModel, OpGraph
from simsched.model.costmodel import Target, bare


def overlap(
    graph: OpGraph,
    cluster: Target,
    cost: CostModel | None = None,
    *,
    execution: str = "graph",
    load: Load | None = None,
    halves: Load | None = None,
    over: tuple[str, Sequence[int]] | None = None,
    measured_us: float | None = None,
    partition: bool = False,
    worth: float = WORTH,
) -> Overlaps:
    """Find operators that could run side by side on one GPU, and rank these overlaps by their gains.

    Parameters
    ----------
    graph
        The operators; with collectives, the operators of one of several equal GPUs.
    cluster, cost
        As in `simulate`; the first device runs everything.
    execution
        ``"graph"``: captured as a CUDA graph; ``"events"``: launched by a lean host; ``"eager"``: launched by
        PyTorch's host, operator by operator.
    load
        Makes the graph for other parameters, such as ``partial(workloads.load_kind, "llm:deepseek-v3,tp=8")``.
    halves
        Makes two steps of half the batch each in one graph, for the same parameters; the labels of their blocks begin
        with ``micro0`` and ``micro1``. It raises a `GraphError` where the batch is too small. None: half-batches are
        not tried.
    over
        A parameter of `load` and its rising values, for each of which all overlaps are simulated; see `read_over`.
    measured_us
        Measured time of the step in us without overlaps, over which gains are then, see `gain_of_step`. None for the
        simulated time.
    partition
        Whether to search for the division of SMs between the streams with which each overlap is fastest.
    worth
        Gain from which on an overlap is said to pay, more than 0.

    Returns
    -------
    Overlaps
        A row for each overlap by falling gain (of equal gains in the order of the graph), and for all together that
        add up, if there are several.

    Raises
    ------
    WhatIfError
        If the graph is too large, `worth` is out of range, or `over` comes without `load` or with `measured_us`.
    UnknownNameError
        If there is no such execution.
    SimschedError
        As `load`, `schedule` and `simulate` do.

    Notes
    -----
    The baseline is one stream. A branch that is independent of some operator (see `branches`) gets a stream of its
    own, in all its places at once, and is launched before or after the operators beside it, whichever is faster. Of
    more than 100 branches those are simulated that could save most: no more than they or their rivals take alone.
    Half-batches take turns from one collective to the next. "All together" adds branches by falling gain, each if it
    makes the step faster. Two more simulations, without contention, and without the costs of launches and waits
    besides, say how much is lost to each. Ranges are those of `compare` with smaller errors of the model, since the
    same kernels run in both cases. For a partition the side stream gets each sixteenth of the SMs, and the first one
    all or the others, as by green contexts.

    A short operator beside a long one that leaves room, of 40 us and 100 us:

    >>> import simsched as ss
    >>> ops = [ss.Operator("a", time=100.0, utilization=0.5), ss.Operator("b", time=40.0, utilization=0.3)]
    >>> result = overlap(ss.OpGraph(ops, name="two"), ss.Cluster.preset("a100").without_overheads())
    >>> [(row.name, row.beside, round(row.gain, 3)) for row in result.rows]
    [('b', 'a', 0.4)]
    """
    if execution not in EXECUTIONS:
        raise UnknownNameError("execution of overlaps", str(execution), list(EXECUTIONS))
    if not 0.0 < worth < inf:
        raise WhatIfError(f"the gain from which on an overlap pays must be above 0 and finite, not {worth}")
    if over is not None and load is None:
        raise WhatIfError("`over` varies a parameter of the graph: give `load`, which makes the graph for a value")
    if over is not None and measured_us is not None:
        raise WhatIfError("a measured step is of one graph: leave out `over`, or `measured_us`")
    bench = TrialBench(graph, cluster, cost, execution)
    trials = bench.trials(halves_of(halves, {}))
    joint = bench.together(trials)
    if joint is None:
        listed = trials
    else:
        listed = [*trials, joint]
    ranged, doubt = bench.ranges(listed)
    rows = [_row(bench, trial, ranged.get(trial.name)) for trial in listed]
    plans = {trial.name: trial.plan for trial in listed}
    if partition:
        for i, trial in enumerate(trials):
            side, main, plans[f"{trial.name}, divided"], time = bench.find_division(trial)
            if main is None:
                others = bare(cluster).devices[0].sms
            else:
                others = main.sms
            shares = Shares(side.sms, others, time, bench.base_time / time - 1.0)
            rows[i] = replace(rows[i], shares=shares)
    if measured_us is not None:
        rows = [_over_measured(row, bench.base_time, measured_us) for row in rows]
    points: tuple[Point, ...] = ()
    if load is not None and over is not None:
        parameter, values = over
        benches = (TrialBench(load(**{parameter: value}), cluster, cost, execution) for value in values)
        points = tuple(point(one, halves, parameter, value) for one, value in zip(benches, values, strict=True))
    return Overlaps(
        bench.graph.name,
        bare(cluster).name,
        execution,
        bench.base_time,
        tuple(rows),
        None if over is None else over[0],
        points,
        _turns(trials, points, worth),
        doubt,
        plans,
        measured_us=measured_us,
        untried=bench.untried,
        untried_us=bench.untried_us,
        is_divided=partition,
        worth=worth,
    )


def _turns(trials: Iterable[Trial], points: Sequence[Point], worth: float) -> tuple[Turn, ...]:
    """Return the turns of all overlaps: the graph's first, then those that only other values have."""
    if not points:
        return ()
    names = [trial.name for trial in trials] + [name for one in points for name in one.gain]
    return tuple(turn(name, points, worth) for name in dict.fromkeys(names))


def _row(bench: TrialBench, trial: Trial, ranged: Ranged | None) -> Overlap:
    """Return an overlap with its gain, and the parts of the possible gain that are lost."""
    gain = bench.base_time / trial.time - 1.0
    alone = bench.time_apart(bench.base) / bench.time_apart(trial.plan) - 1.0
    possible = bench.time_free(bench.base) / bench.time_free(trial.plan) - 1.0
    low = high = None
    if ranged is not None and ranged.speedup_low is not None and ranged.speedup_high is not None:
        low = ranged.speedup_low - 1.0
        high = ranged.speedup_high - 1.0
    return Overlap(
        trial.name,
        trial.beside,
        trial.places,
        trial.launched,
        trial.time,
        gain,
        low,
        high,
        possible,
        alone - gain,
        possible - alone,
    )


def gain_of_step(gain: float, simulated: float, measured: float) -> float:
    """Return a gain over the measured time of a step, of one over its simulated time.

    An engine does more in a longer step, and the overlap saves as much as simulated. In a shorter one its kernels are
    quicker than simulated, and less time is saved: the gain stays.

    >>> [round(gain_of_step(0.25, simulated=100.0, measured=us), 3) for us in (220.0, 50.0)]
    [0.1, 0.25]
    """
    if measured <= simulated:
        return gain
    saved = simulated - simulated / (1.0 + gain)
    return measured / (measured - saved) - 1.0


def _over_measured(row: Overlap, base: float, measured: float) -> Overlap:
    """Return an overlap with gains over a measured step instead of the simulated one."""
    scaled = partial(gain_of_step, simulated=base, measured=measured)
    gain = scaled(row.gain)
    alone = scaled(row.gain + row.contention)
    possible = scaled(row.possible)
    return replace(
        row,
        gain=gain,
        gain_low=None if row.gain_low is None else scaled(row.gain_low),
        gain_high=None if row.gain_high is None else scaled(row.gain_high),
        possible=possible,
        contention=alone - gain,
        waits=possible - alone,
        shares=None if row.shares is None else replace(row.shares, gain=scaled(row.shares.gain)),
    )
