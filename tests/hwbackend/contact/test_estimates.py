"""Direct estimates, by hand; and drawn truths that a contact finds again."""

from math import exp

import numpy as np
import pytest
from contacts import DEVICE, measured

from hwbackend.contact.device import StampedBlock
from hwbackend.contact.estimates import Drift, ramp_of, warps_that_saturate, without_drift
from hwbackend.contact.fake import FakeDevice
from hwbackend.contact.fake.blocks import place_blocks
from hwbackend.contact.fitted import crowd_of
from hwbackend.contact.sections.dispatch import taken_slots
from hwbackend.contact.sections.host import crowds
from simsched.model import Cluster, Operator, OpGraph, Schedule
from simsched.model.backend import prepare
from simsched.model.profile import Replay
from simsched.model.trace import measured_trace, spans_of
from validation.contact import WITHIN, parameter_errors, true_parameters


def test_warps_beyond_those_that_saturate_take_turns():
    """10 us up to 12 warps; 24 take 20 us, 36 take 30: 24 * 10 / 20 = 36 * 10 / 30 = 12."""
    assert warps_that_saturate([1, 6, 12, 24, 36], [10.0, 10.0, 10.0, 20.0, 30.0]) == 12.0
    assert warps_that_saturate([1, 2], [10.0, 10.0]) == 2.0  # more are not known to


def test_a_clock_that_rises_is_told_by_its_beginning_and_its_time():
    """The anchor takes 100 us at the full clock, of which 1 - 0.6 exp(-t / 0.3) is there after t s."""
    at = np.arange(0.0, 3.0, 0.01)
    rows = [[t, 100.0 / (1.0 - 0.6 * exp(-t / 0.3))] for t in at.tolist()]
    ramp = ramp_of(rows)
    assert ramp["ramp_start"] == pytest.approx(0.4, abs=0.005)
    assert ramp["ramp_time"] == pytest.approx(0.3, rel=0.01)
    assert ramp_of([[t, 100.0] for t in at.tolist()]) == {"ramp_start": 1.0, "ramp_time": 0.0}


def test_a_drift_is_taken_out_at_each_time():
    """The clock falls by 2 % in 100 s: after 50 s the anchor of 50 us takes 50 / 0.99."""
    at = np.arange(0.0, 101.0, 2.0)
    drift = Drift(at, 50.0 / (1.0 - 0.02 * at / 100.0))
    assert drift.fall == pytest.approx(0.02)
    assert drift.factor(50.0) == pytest.approx(1.0 / 0.99)
    assert Drift(np.array([]), np.array([])).factor(3.0) == 1.0


def test_the_drift_of_the_device_changes_no_time_of_the_host():
    """A launch of 4 us, two kernels of 10 and 20 us with 1 us between them, 8 us of the host, a kernel of 10 us.

    The device takes 1.25 times as long: 31 us of its own were 24.8, and the last 10 were 8; both of the host's stay.
    """
    graph = OpGraph([Operator(name, time=1.0) for name in "abc"])
    cluster = Cluster.preset("h100")
    plan = Schedule.from_columns(graph, [0, 1, 2], (cluster.devices[0].name,))
    program = plan.lower(cluster)
    spans = np.array([(4.0, 14.0), (15.0, 35.0), (43.0, 53.0)])
    trace = measured_trace(program, cluster, spans, np.zeros((0, 2)))
    run = without_drift(Replay((53.0, 106.0), trace, {}, None, "x"), 1.25)
    found = spans_of(run.trace).launches
    assert found == pytest.approx(np.array([(4.0, 12.0), (12.8, 28.8), (36.8, 44.8)]))
    assert run.latency == pytest.approx((44.8, 89.6))


def test_the_drift_of_the_clock_of_sms_changes_no_time_of_dram():
    """Kernels of 10 us each, one after the other: of three the second is bound by DRAM; 1.25 times as slow."""
    graph = OpGraph([Operator(name, time=1.0, intensity="memory" if name == "b" else "compute") for name in "abc"])
    cluster = Cluster.preset("h100")
    program = Schedule.from_columns(graph, [0, 1, 2], (cluster.devices[0].name,)).lower(cluster)
    spans = np.array([(0.0, 10.0), (14.0, 24.0), (28.0, 38.0)])
    trace = measured_trace(program, cluster, spans, np.zeros((0, 2)))
    run = without_drift(Replay((38.0,), trace, {}, None, "x"), 1.25)
    assert spans_of(run.trace).launches == pytest.approx(np.array([(0.0, 8.0), (12.0, 22.0), (26.0, 34.0)]))
    alone = OpGraph([Operator("b", time=1.0, intensity="memory")])
    program = Schedule.from_columns(alone, [0], (cluster.devices[0].name,)).lower(cluster)
    trace = measured_trace(program, cluster, spans[:1], np.zeros((0, 2)))
    same = Replay((10.0,), trace, {}, None, "x")
    assert without_drift(same, 1.25) is same


def test_what_a_kernel_loses_beside_another_is_told_from_interference():
    """Of 3 and 12 us alone; half a us later and a tenth slower beside another: 3.85 and 13.75 us."""
    cluster = FakeDevice(seed=1).cluster
    plans = {plan.scheduler: plan for plan in crowds(cluster)}
    runs = [
        crowded_run(plan, cluster, us, 1.1 * (us + 0.5)) for plan, us in zip(plans.values(), (3.0, 12.0), strict=True)
    ]
    assert crowd_of(runs) == pytest.approx(0.5)
    assert crowd_of(runs[:1]) is None


def crowded_run(plan, cluster, alone, beside):
    """A chain whose first 60 kernels run beside the first kernel, each a us after the last one."""
    program = prepare(FakeDevice(seed=1).backend, plan)
    took = np.array([beside] * 60 + [alone] * 60)
    start = np.concatenate([[0.0], np.cumsum(took[:-1] + 1.0)])
    lasting = (0.0, float(start[59] + took[59]))
    spans = np.vstack([[lasting], np.column_stack([start, start + took])])
    trace = measured_trace(program, cluster, spans, np.zeros((0, 2)))
    return Replay((1.0,), trace, {}, None, plan.scheduler)


def test_slots_are_counted_until_the_first_kernel_has_one_block_left():
    """Two slots. The first kernel starts blocks at 0, 0, 1 and 2; the second takes one slot at 1, and the last at 3.

    Both slots freed at 1 have a choice of two kernels; the one of 2 goes to the last block of the first kernel,
    whatever the device prefers. A start of the second one at 2 may be before that block or after it: the timer does not
    tell.
    """
    first = [StampedBlock(0, 0, start, start + 1.0) for start in (0.0, 0.0, 1.0, 2.0)]
    second = [StampedBlock(1, 0, start, start + 1.0) for start in (1.0, 3.0)]
    assert taken_slots(first + second) == (2, 1)
    assert taken_slots([*first, *second, StampedBlock(1, 0, 2.0, 3.0)]) == (2, 1)


@pytest.mark.parametrize("tick", [0.001, 0.25, 2.0])
def test_steps_of_the_timer_do_not_change_the_part_of_slots_that_are_taken(tick):
    """A third of the slots go to the second kernel, of 60 us blocks that start 0.002 us after each other."""
    rng = np.random.default_rng(1)
    freed = taken = 0
    for _ in range(12):
        placed = place_blocks([2000, 2000], [60.0, 60.0], 8, 132, 1 / 3, rng)
        stamped = [block._replace(start=block.start // tick * tick, end=block.end // tick * tick) for block in placed]
        counts = taken_slots(stamped)
        freed += counts[0]
        taken += counts[1]
    assert taken / freed == pytest.approx(1 / 3, rel=0.03)


def test_blocks_of_a_fake_are_placed_evenly_and_in_order():
    """Of 4 and 2 blocks on 2 SMs of 2 slots, leftover: the first kernel fills both; the second follows on both."""
    found = place_blocks([4, 2], [1.0, 1.0], 2, 2, 0.0, np.random.default_rng(0))
    assert [block.sm for block in found] == [0, 1, 0, 1, 0, 1]
    assert [block.op for block in found] == [0] * 4 + [1] * 2
    assert min(block.start for block in found[4:]) >= 1.0


def test_a_drawn_truth_is_found_again(tmp_path):
    """Every parameter within 3 %: costs, rates, dispatch, timer, clock. Others of the preset's stay as they are."""
    record = measured(tmp_path, DEVICE, apart=80.0, seed=11)
    errors = parameter_errors(record, seed=11)
    assert {name: error for name, error in errors.items() if error > WITHIN} == {}
    prior = FakeDevice(seed=11).cluster.devices[0]
    assert abs(true_parameters(seed=11)["launch"] / prior.launch - 1.0) > WITHIN, "the preset itself would do"
