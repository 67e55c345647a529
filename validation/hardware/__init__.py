"""Measurements on a machine with a GPU, and their comparison with the simulator: see README.md in this folder."""
