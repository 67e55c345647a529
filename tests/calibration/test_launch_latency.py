"""The latency of launches is not fitted: what is given stays, and says how much of a first start is the launch."""

import numpy as np
import pytest

import simsched as ss
from hwbackend.microbenchmarks import schedules
from simsched.calibration.evidence import Run, times_of
from simsched.calibration.stages import microbenchmarked


@pytest.mark.parametrize("launch", [5.0, 7.0, 9.0])
def test_launches_are_told_from_their_way_to_the_device(launch):
    """Believed to be 6 us of 8: found whether a first kernel waits for the rest of the 8 us or for the call."""
    prior = ss.Cluster.preset("a100")
    runs = []
    for plan in schedules(prior):
        if plan.scheduler.startswith("overhead/"):
            trace = ss.simulate(plan, prior.replace_devices(launch=launch))
            times = times_of(trace)
            runs.append(Run(plan.scheduler, trace.program, (trace.makespan,) * 3, times.launches, times.copies))
    rows, residuals = microbenchmarked(runs, prior, rng=np.random.default_rng(0), bootstrap=2)
    found = {row.name: row.value for row in rows}
    assert "launch_latency" not in found
    assert found["launch"] == pytest.approx(launch, rel=1e-3)
    assert found["barrier"] == pytest.approx(10.0, rel=1e-2)
    assert all(row.predicted == pytest.approx(row.measured, rel=1e-3) for row in residuals)
