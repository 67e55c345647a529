"""Calibrate on a device that differs from its preset, and predict how long schedules take on it.

The surrogate device needs no hardware. `hwbackend.get("cupy")` in its place measures an NVIDIA GPU.
"""

import hwbackend
import simsched as ss
import workloads

graph = workloads.load("tiny_inception")
backend = hwbackend.get("synthetic", gpu="a40")
preset = backend.cluster  # what a data sheet says
profile = backend.profile(backend.realise(graph), in_situ=4)  # operators in place; overheads keep their priors
calibration = ss.calibrate(None, profile)


def error(upon, name):
    """How far the prediction for a scheduler's schedule is from what the device measures."""
    plan = ss.schedule(graph, upon, name)
    return abs(ss.simulate(plan, upon).makespan / backend.replay(plan, repeats=7).median - 1)


for name in ("sequential", "lios", "heft"):
    before, after = error(preset, name), error(calibration, name)
    verdict = "within 8 %" if after < 0.08 else "not within 8 %"
    print(f"{name:<10}  {'better' if after < before else 'no better'} than the preset, {verdict}")
