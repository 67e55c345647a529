"""AutoGraph: substitutions that shorten the whole of a graph on many streams."""

from simsched.schedulers.autograph.schedule import atoms, autograph, intervals

__all__ = ["atoms", "autograph", "intervals"]
