"""Many independent items on whatever there is to run them: this process, a pool of processes, Dask.

It does not depend on the kind of items. `Batches` keeps results as they arrive, even if workers die.
"""

from simsched.experiments.study.execution.batch import Batches, Pool
from simsched.experiments.study.execution.limits import TimeLimitReached, call_within
from simsched.experiments.study.execution.pools import pool_of

__all__ = ["Batches", "Pool", "TimeLimitReached", "call_within", "pool_of"]
