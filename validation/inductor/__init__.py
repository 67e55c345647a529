"""Inductor with orders and streams of ours, without a GPU: kernels, races, and values in random legal orders."""
