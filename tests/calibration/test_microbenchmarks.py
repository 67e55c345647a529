"""The latency of launches is told from their call by when a first kernel starts."""

import pytest

import simsched as ss
from hwbackend.measuring.microbenchmarks import schedules
from simsched.calibration.evidence import MeasuredRun
from simsched.calibration.microbenchmarks import fit_microbenchmarks


def found_by_overheads(truth, prior):
    """What microbenchmarks of overheads say: values, whether identified, and by how much they are missed."""
    runs = []
    for plan in schedules(prior):
        if plan.scheduler.startswith("overhead/"):
            trace = ss.simulate(plan, truth)
            runs.append(MeasuredRun.of(ss.Replay((trace.makespan,) * 3, trace, name=plan.scheduler)))
    rows, residuals = fit_microbenchmarks(runs, prior)
    return {row.name: row for row in rows}, max(abs(row.error) for row in residuals)


@pytest.mark.parametrize(("launch", "latency", "believed"), [(5.0, 8.0, 0.0), (7.0, 8.0, 9.5), (6.0, 12.0, 6.5)])
def test_launches_are_told_from_their_way_to_the_device(launch, latency, believed):
    """A first kernel starts after the way, later ones a call apart; nothing else takes up what was believed wrongly."""
    truth = ss.Cluster.preset("a100").replace_devices(launch=launch, launch_latency=latency)
    found, missed = found_by_overheads(truth, ss.Cluster.preset("a100").replace_devices(launch_latency=believed))
    assert found["launch"].value == pytest.approx(launch, rel=1e-2)
    assert found["launch_latency"].value == pytest.approx(latency, rel=1e-2)
    assert found["barrier"].value == pytest.approx(10.0, rel=1e-2)
    assert found["gap"].value == pytest.approx(0.9, abs=0.02)
    assert missed < 2e-3


def test_a_way_that_takes_no_longer_than_the_call_is_not_seen():
    """Said to be 0: it may be anything up to the 9 us of a call, and stays what it was."""
    truth = ss.Cluster.preset("a100").replace_devices(launch=9.0, launch_latency=0.0)
    found, missed = found_by_overheads(truth, truth)
    assert (found["launch_latency"].value, found["launch_latency"].identified) == (0.0, False)
    assert found["launch_latency"].note == "no run depends on it"
    assert missed < 2e-3
