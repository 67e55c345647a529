"""Ranges of makespans and speedups: what is not sure of a cluster, in worlds common to all schedules."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small import made, operators

import simsched as ss
from simsched.base.units import format_gain
from simsched.experiments.ranges import (
    MEASURED_COMMON,
    MODEL_ERRORS,
    Errors,
    outcomes,
    ranges,
    uncalibrated_errors,
    unsure_of,
)
from simsched.model.cluster import PRIORS
from simsched.simulator.simulate import simulate_worlds

GRAPH = made(operators("a=100 b=100", utilization=0.3))
CLUSTER = ss.Cluster.preset("a100")


def test_a_world_is_simulated_as_its_cluster_is():
    """A world whose cost model is that of the graph gives the makespan that `simulate` gives, on each cluster."""
    plans = [ss.schedule(GRAPH, CLUSTER, name) for name in ("sequential", "lios")]
    clusters = [CLUSTER.replace_devices(launch=us) for us in (1.0, 20.0)]
    worlds = [(each, lambda op, device: op.time) for each in clusters]
    found = simulate_worlds([plan.lower(CLUSTER) for plan in plans], worlds)
    assert found.tolist() == [[ss.simulate(plan, each).makespan for each in clusters] for plan in plans]


def test_what_is_given_and_what_is_common_leaves_a_speedup_alone():
    """Two of 100 us after or beside each other: the times are given, and overheads are some us.

    The speedup of about 1.9 lies within the model's errors: of two times, and of its logarithm of .64 a part, which
    the middle of the range is lower by, too.
    """
    found = ss.compare(GRAPH, CLUSTER, ["sequential", "lios"], baseline="sequential")
    sequential, lios = found.rows
    low, high = lios.speedup_low, lios.speedup_high
    assert low < lios.speedup < high
    gain = np.log(lios.speedup)
    error = np.hypot(2**0.5 * MODEL_ERRORS.own, MODEL_ERRORS.gain * gain)
    assert high / low == pytest.approx(np.exp(2 * 1.645 * error), rel=0.06)
    assert (low * high) ** 0.5 == pytest.approx(np.exp((1 - MODEL_ERRORS.shortfall) * gain), rel=0.05)
    assert (sequential.speedup_low, sequential.speedup_high) == (1.0, 1.0)
    assert (sequential.place, lios.place, found.doubt.basis) == (2, 1, "uncalibrated")


def test_kernels_that_nobody_knows_are_said_to_be_assumed():
    """AMD's libraries were never measured; no sentence that gives a range leaves that out."""
    graph = ss.OpGraph([ss.Operator("a", time=1.0, utilization=0.2), ss.Operator("b", time=1.0, utilization=0.2)])
    cluster = ss.Cluster.preset("mi355x")
    said = "uncalibrated, with kernels of an A100 assumed for mi355x"
    for finding in (ss.compare(graph, cluster), ss.overlap(graph, cluster), ss.advise(graph, cluster)):
        assert said in repr(finding)


def test_rooflines_are_less_sure_than_given_times():
    """A roofline varies by its rates and by a factor of 0.7 to 1.4 that all operators alike share."""
    graph = ss.OpGraph([ss.Operator("a", flops=1e10)])
    program = ss.schedule(graph, CLUSTER, "sequential").lower(CLUSTER)
    low, high, *_ = ranges({"one": program}, CLUSTER)[0]["one"]
    given = np.exp(2 * 1.645 * np.hypot(MODEL_ERRORS.own, MODEL_ERRORS.common))
    assert 1.03 * given < high / low < given * 1.4 / 0.7 * 1.0 / 0.75


def test_schedules_alike_share_a_place_and_worlds_are_the_same_each_time():
    program = ss.schedule(GRAPH, CLUSTER, "lios").lower(CLUSTER)
    found = ranges({"a": program, "b": program}, CLUSTER)
    assert [each.place for each in found[0].values()] == [1, 1]
    assert found == ranges({"a": program, "b": program}, CLUSTER)


def test_free_stays_free():
    """Without overheads nothing of them is drawn: a time that is given is the makespan, but for the model's error."""
    program = ss.schedule(made("a=50"), CLUSTER, "sequential").lower(CLUSTER)
    low, high, *_ = ranges({"one": program}, CLUSTER.without_overheads())[0]["one"]
    error = 1.645 * np.hypot(MODEL_ERRORS.own, MODEL_ERRORS.common)
    assert (low, high) == pytest.approx((50 * np.exp(-error), 50 * np.exp(error)), rel=0.05)


def test_times_are_surer_where_kernels_were_measured():
    """An H100 and an H200 are of the generation that was measured; a cluster is as sure as its least sure device."""
    commons = [
        uncalibrated_errors(ss.Cluster.preset(name)).common for name in ("h100", "h200", "h100-pcie", "a100", "b200")
    ]
    assert commons == [MEASURED_COMMON] * 3 + [MODEL_ERRORS.common] * 2
    mixed = ss.Cluster([replace(ss.Cluster.preset(name).devices[0], name=name) for name in ("h100", "a100")])
    assert uncalibrated_errors(mixed).common == MODEL_ERRORS.common


def test_every_prior_of_a_device_is_drawn():
    names = {each.name for each in unsure_of(ss.Cluster.preset("a100", 2), exchanges=True)}
    assert names >= {name for name in PRIORS if not name.startswith(("pcie", "saturating_cycles", "operator", "eager"))}


@settings(max_examples=30, deadline=None)
@given(
    errors=st.builds(
        Errors, own=st.floats(0.001, 0.3), common=st.floats(0, 0.5), gain=st.floats(0, 0.6), shortfall=st.floats(0, 1)
    ),
    gpu=st.sampled_from(["k80", "v100", "a100", "h100"]),
    sizes=st.lists(st.floats(1e4, 1e12), min_size=1, max_size=5),
    name=st.sampled_from(["lios", "nimble", "greedy"]),
)
def test_points_lie_in_their_ranges(errors, gpu, sizes, name):
    """However far most worlds are from what is simulated: host times may be much longer, not much shorter."""
    graph = ss.OpGraph([ss.Operator(f"o{i}", flops=size) for i, size in enumerate(sizes)])
    cluster = ss.Cluster.preset(gpu)
    base, plan = (ss.schedule(graph, cluster, each).lower(cluster) for each in ("sequential", name))
    found = ranges({name: plan}, cluster, reference=base, errors=errors)[0][name]
    slow, fast = (ss.simulate(program, cluster).makespan for program in (base, plan))
    assert found.makespan_low_us <= fast <= found.makespan_high_us
    assert found.speedup_low <= slow / fast * (1 + 1e-9)
    assert slow / fast * (1 - 1e-9) <= found.speedup_high


@given(
    st.floats(0.05, 500), st.floats(0, 3), st.floats(0, 3), st.sampled_from([("x", ""), (" times", ", uncalibrated")])
)
def test_gains_have_the_digits_that_their_ranges_leave(gain, below, above, words):
    low, high = gain * np.exp(-below), gain * np.exp(above)
    assume(low < high)
    told, least, most = map(float, re.findall(r"\d+\.?\d*", format_gain(gain, low, high, *words))[:3])
    assert least <= told <= most
    if high >= 2 * low:
        assert told == float(f"{told:.0e}")


def test_ranges_of_graphs_with_collectives_have_what_links_do():
    """A collective that takes nearly all of the time: its range is that of its links, on one device or on eight."""
    graph = ss.OpGraph([ss.Operator("a", time=1.0), ss.Operator("r", collective=ss.Collective("all_reduce", 1e8, 8))])
    for n in (1, 8):
        cluster = ss.Cluster.preset("h100", n)
        known = outcomes({"plan": ss.schedule(graph, cluster, "sequential").lower(cluster)}, cluster)
        names = [each.name for each in known.unsure]
        assert {"link.start", "link.step", "link.efficiency", "link.bandwidth"} <= {*names}
        wide = known.drawn[:, names.index("link.bandwidth")] * known.drawn[:, names.index("link.efficiency")]
        assert np.corrcoef(np.log(wide), known.worlds[0])[0, 1] < -0.5
    bound = ss.schedule(graph, cluster, "sequential").with_partitions({0: 10}).lower(cluster)
    both = outcomes({"free": ss.schedule(graph, cluster, "sequential").lower(cluster), "bound": bound}, cluster)
    assert both.alike.tolist() == [0, 1]
