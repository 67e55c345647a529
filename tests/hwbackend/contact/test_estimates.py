"""Direct estimates, by hand; and drawn truths that a contact finds again."""

from math import exp

import numpy as np
import pytest
from contacts import DEVICE, measured

from hwbackend.contact.device import StampedBlock
from hwbackend.contact.estimates import Drift, ramp_of, warps_that_saturate
from hwbackend.contact.fake import FakeDevice
from hwbackend.contact.fake.blocks import place_blocks
from hwbackend.contact.sections.dispatch import taken_slots
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


def test_slots_are_counted_until_the_first_kernel_has_no_blocks_left():
    """Two slots. The first kernel starts blocks at 0, 0, 1 and 2; the second takes one slot at 1, and the last at 3."""
    first = [StampedBlock(0, 0, start, start + 1.0) for start in (0.0, 0.0, 1.0, 2.0)]
    second = [StampedBlock(1, 0, start, start + 1.0) for start in (1.0, 3.0)]
    assert taken_slots(first + second) == (3, 1)


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
