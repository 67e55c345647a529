"""Random DAGs for scalability studies, from 10 operators to a million and more.

Every family is a function that draws its graph from `rng` and takes its times, utilizations and
transfers from one rule (`workloads.random_dags.weights`). All of them are O(V + E) but for the
sorting of edges, and store columns only. Equal parameters and seeds give equal graphs, whatever
the machine: graphs are recorded in files and compared, under numpy 1.26 as under 2.

>>> from workloads.random_dags import random_cholesky, random_fork_join
>>> random_fork_join(n_ops=50, max_width=6, rng=0)
OpGraph('fork-join-50', 50 operators, 76 edges)
>>> random_cholesky(tiles=4, rng=0)
OpGraph('cholesky-20', 20 operators, 30 edges)
"""

from workloads.random_dags.factorizations import random_cholesky, random_lu
from workloads.random_dags.fft import random_fft
from workloads.random_dags.inception_like import random_inception_like
from workloads.random_dags.layered import random_layered
from workloads.random_dags.nested import random_fork_join, random_series_parallel
from workloads.random_dags.transformer_like import random_transformer_like
from workloads.random_dags.trees import random_in_tree, random_out_tree
from workloads.random_dags.wavefront import random_wavefront
from workloads.random_dags.wired import random_erdos_renyi, random_watts_strogatz

__all__ = [
    "random_cholesky",
    "random_erdos_renyi",
    "random_fft",
    "random_fork_join",
    "random_in_tree",
    "random_inception_like",
    "random_layered",
    "random_lu",
    "random_out_tree",
    "random_series_parallel",
    "random_transformer_like",
    "random_watts_strogatz",
    "random_wavefront",
]
