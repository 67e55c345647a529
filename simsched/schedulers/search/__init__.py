"""Search: local changes to the best schedule of others, judged by the simulator."""

from simsched.schedulers.search.candidate import Candidate, change_stages, launch_order, merge
from simsched.schedulers.search.schedule import search

__all__ = ["Candidate", "change_stages", "launch_order", "merge", "search"]
