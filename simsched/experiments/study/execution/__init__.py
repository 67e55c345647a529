"""Many independent items on whatever there is to run them: this process, a pool of processes, Dask.

It knows nothing of what the items are. `Batches` keeps what is done as it comes, whatever dies meanwhile.
"""

from simsched.experiments.study.execution.batch import Batches, Pool
from simsched.experiments.study.execution.limits import TimeLimitReached, call_within
from simsched.experiments.study.execution.pools import pool_of

__all__ = ["Batches", "Pool", "TimeLimitReached", "call_within", "pool_of"]
