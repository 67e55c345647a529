"""Launches through the driver, on a fake of it whose truth is drawn: what PDL saves, and the SMs of green contexts."""

import numpy as np
import pytest
from contacts import measured
from fake_probes import TURN_NS, fake_probes

from hwbackend.contact import probes as probes_module
from hwbackend.contact.device import BackendDevice, UnsupportedError
from hwbackend.contact.estimates import direct_estimates
from hwbackend.contact.fake import FakeDevice
from hwbackend.contact.sections.item import SIZES, Bench
from hwbackend.contact.sections.launches import launch_items
from hwbackend.synthetic.backend import SyntheticBackend
from simsched.base.errors import BackendError


class Device:
    """A device of a contact that can do nothing but launch probes."""

    def __init__(self, driver, probes):
        self._driver, self._probes = driver, probes
        self._streams = [driver.cuda.stream(0) for _ in range(2)]

    def chain(self, *, programmatic):
        return self._probes.chain(self._streams[0], programmatic=programmatic)

    def halves(self):
        return self._probes.halves(self._driver.sms, self._streams)


def measure_items(device):
    bench = Bench(device, None, SIZES["small"])
    return {item.key: item.measure(bench) for item in launch_items()}


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_truth_is_found_again_through_the_driver(monkeypatch, seed):
    """What a programmatic launch saves, and the part of the SMs of a green context that asked for half of them."""
    monkeypatch.setattr("hwbackend.contact.sections.launches._REPEATS", 3)
    rng = np.random.default_rng(seed)
    sms, step = int(rng.choice([108, 114, 132, 148])), int(rng.choice([2, 4, 8]))
    saved = int(rng.integers(100, 1200))
    driver, probes = fake_probes(sms=sms, step=step, gap_ns=1500, saved_ns=saved)
    found = measure_items(Device(driver, probes))
    dependent = found["launches/dependent"]
    assert dependent["ordered"] == pytest.approx(1500 * TURN_NS / 1000 + 1.5)
    assert dependent["ordered"] - dependent["dependent"] == pytest.approx(saved / 1000)
    green = found["launches/green"]
    first = -(-(sms // 2) // step) * step
    assert green["sms"] == [first, sms - first]
    assert green["shared"] == pytest.approx(40_000 * TURN_NS / 1000)
    waves = -(-sms // min(first, sms - first))
    assert green["halves"] == pytest.approx(green["shared"] * waves)
    assert driver.contexts == {}
    assert driver.cuda.live["streams"] == 2, "a stream of a green context was not given back"


def test_a_driver_that_refuses_costs_no_context():
    """The second green context is refused: the first one and its stream are given back."""
    driver, probes = fake_probes()
    driver.most_contexts = 1
    with pytest.raises(BackendError, match="the driver of CUDA refuses: CUDA_ERROR_INVALID_VALUE"):
        probes.halves(driver.sms, [driver.cuda.stream(0), driver.cuda.stream(0)])
    assert driver.contexts == {}
    assert driver.cuda.live["streams"] == 2


def test_a_device_of_few_sms_cannot_be_split():
    """Half of 8 SMs are 8 where they are given by eight: nothing is left for the others."""
    driver, _ = fake_probes(sms=8)
    with (
        pytest.raises(BackendError, match="the driver cannot split 8 SMs into parts of 4 and others"),
        probes_module.green_streams(driver, 4),
    ):
        pass


def test_the_sections_run_on_a_fake_device(tmp_path):
    """Both are within 3 % of the truth that is drawn; the driver's synthetic stand-in refuses them."""
    record = measured(tmp_path, ["doctor", "launches"], seed=4)
    truth = FakeDevice(seed=4).truth
    found = direct_estimates(record)
    assert found["programmatic"] == pytest.approx(truth.programmatic, rel=0.03)
    assert found["green_share"] == truth.green_sms / truth.device.sms
    other = BackendDevice(SyntheticBackend())
    with pytest.raises(UnsupportedError, match="'synthetic' does not measure programmatic launches"):
        other.chain(programmatic=True)
    with pytest.raises(UnsupportedError, match="'synthetic' does not measure green contexts"):
        other.halves()
