"""The comparison that commands print, report or write: of the schedulers that their options name."""

from dataclasses import replace
from typing import TYPE_CHECKING

import simsched as ss
from simsched.base.errors import SchedulerError
from simsched.cli.options import USUAL_JITTER, Compare, Graph, read_schedulers
from simsched.cli.printing import progress

if TYPE_CHECKING:
    from simsched.model.costmodel import Target


def compare(options: Compare, source: Graph, cluster: "Target", *, traced: bool = True) -> "ss.Comparison":
    """Return the comparison of the schedulers that options name, with samples if they are asked for.

    Parameters
    ----------
    traced
        Whether the schedule that a profiler trace ran is compared, too.

    Raises
    ------
    SchedulerError
        If none of them finds a schedule.
    """
    from simsched.experiments.baselines import CAPTURED

    source.require_one_rank()
    graph = source.read()
    names = read_schedulers(options.schedulers, graph, traced=traced and source.traced is not None)
    jitter = USUAL_JITTER if options.samples is not None and options.jitter is None else options.jitter
    with progress(len(names)) as tell:
        comparison = ss.compare(
            graph,
            cluster,
            names,
            jitter=jitter,
            rng=options.seed,
            samples=options.samples,
            progress=tell,
            execution=options.execution,
            baseline=options.baseline or CAPTURED,
        )
    if not comparison.plans:
        row = comparison.rows[0]
        raise SchedulerError(f"no scheduler found a schedule; {row.scheduler}: {row.reason}")
    return replace(comparison, named=not {"fast", "all"} & set(options.schedulers.split(",")))
