"""NVIDIA GPUs through CuPy."""
