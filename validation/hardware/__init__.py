"""Measurements on a machine with a GPU, and what the simulator makes of them: see README.md in this folder."""
