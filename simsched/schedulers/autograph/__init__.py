"""AutoGraph: graph substitutions for many streams."""

from simsched.schedulers.autograph.search import autograph

__all__ = ["autograph"]
