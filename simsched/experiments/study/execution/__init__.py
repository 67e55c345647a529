"""Many independent items on whatever there is to run them: this process, a pool of processes, Dask, an Executor.

It knows nothing of what the items are. `run_batches` keeps what is done as it comes, whatever dies meanwhile.
"""

from simsched.experiments.study.execution.batch import Pool, this_process_alone
from simsched.experiments.study.execution.limits import TimeLimitReached, time_limited
from simsched.experiments.study.execution.loop import run_batches
from simsched.experiments.study.execution.pools import pool_of

__all__ = ["Pool", "TimeLimitReached", "pool_of", "run_batches", "this_process_alone", "time_limited"]
