"""Studies: workloads, clusters and schedulers each with each, run in parallel, resumed, brought together, tabulated.

A study is a TOML file or a `Study`; `run_study` makes its rows, `Results` reads them.
"""

from simsched.experiments.study.rank import Ranking
from simsched.experiments.study.results import Results, merge, run_study
from simsched.experiments.study.study import Study

__all__ = ["Ranking", "Results", "Study", "merge", "run_study"]
