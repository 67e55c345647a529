"""CUDA sources and their launches as plain data."""
