"""Overlaps: operators that could run side by side on one GPU, and their gains."""

from simsched.experiments.overlap.candidates import Branch, branches
from simsched.experiments.overlap.overlap import overlap
from simsched.experiments.overlap.results import Overlap, Overlaps, Point, Turn
from simsched.experiments.overlap.turns import read_over

__all__ = ["Branch", "Overlap", "Overlaps", "Point", "Turn", "branches", "overlap", "read_over"]
