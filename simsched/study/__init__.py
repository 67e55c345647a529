"""Studies: workloads, clusters and schedulers each with each, run in parallel, resumed, brought together, tabulated.

A study is a TOML file or a `Study`; `run_study` makes its rows, `Results` reads them.
"""

from simsched.study.merge import merge
from simsched.study.results import Results
from simsched.study.run import run_study
from simsched.study.study import Study

__all__ = ["Results", "Study", "merge", "run_study"]
