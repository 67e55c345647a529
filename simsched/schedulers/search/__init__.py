"""Search: local changes to the best schedule of others, judged by the simulator."""

from simsched.schedulers.search.search import search

__all__ = ["search"]
