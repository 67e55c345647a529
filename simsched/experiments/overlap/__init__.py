"""What could run beside what in a graph, and what that gains."""

from simsched.experiments.overlap.candidates import Branch, branches
from simsched.experiments.overlap.overlap import Overlap, Overlaps, Point, Turn, overlap, read_over

__all__ = ["Branch", "Overlap", "Overlaps", "Point", "Turn", "branches", "overlap", "read_over"]
