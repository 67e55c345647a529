"""What the cpu backend takes for a busy machine, from clocks that tests write."""

import pytest

from hwbackend.cpu_noise import Probe, clean_runs, rejected, was_preempted
from hwbackend.cpu_run import Sample
from simsched.base.errors import BackendError

CLEAN, PREEMPTED = Sample(1000.0, 999.0, 0, 0), Sample(1000.0, 600.0, 1, 0)


class Runs:
    """Runs of one block each, that saw what is given; the last again and again."""

    def __init__(self, *samples):
        self.left, self.made = list(samples), 0

    def __call__(self):
        self.made += 1
        self.samples = [self.left.pop(0) if len(self.left) > 1 else self.left[0]]
        return self


@pytest.mark.parametrize(
    ("sample", "lost"),
    [
        (Sample(1000.0, 970.0, 0, 0), False),  # 30 of at most 10 + 20 us lost
        (Sample(1000.0, 969.0, 0, 0), True),
        (Sample(1000.0, 995.0, 1, 0), False),  # pushed aside, for next to nothing
        (Sample(1000.0, 870.0, 0, 1), False),  # 130 of at most 10 + 20 + 100 us: it waited for Python once
        (Sample(1000.0, 869.0, 0, 1), True),
        (Sample(1000.0, 960.0, 1, 1), True),  # a wait is no excuse for one that was pushed aside too
        (Sample(1000.0, 1004.0, 0, 0), False),  # clocks are read one after the other
    ],
)
def test_a_block_that_lost_its_core(sample, lost):
    assert was_preempted(sample) is lost


def test_part_of_blocks_that_lost_their_core():
    assert rejected([CLEAN, PREEMPTED, CLEAN, CLEAN]) == 0.25
    assert rejected([]) == 0.0


def test_runs_with_preempted_blocks_are_made_again():
    """Of five runs two were preempted: three are kept, and 2/5 was the rate."""
    once = Runs(CLEAN, PREEMPTED, CLEAN, PREEMPTED, CLEAN)
    runs, rate = clean_runs(once, 3)
    assert (len(runs), once.made, rate) == (3, 5, pytest.approx(0.4))


def test_half_of_the_repeats_are_enough():
    """Two of four wanted are clean, the other 14 of at most 16 runs are not."""
    runs, rate = clean_runs(Runs(CLEAN, CLEAN, PREEMPTED), 4)
    assert (len(runs), rate) == (2, pytest.approx(14 / 16))


def test_too_few_clean_runs_are_refused():
    once = Runs(CLEAN, PREEMPTED)
    with pytest.raises(BackendError, match=r"preempted in 94% of 16 runs, and 4 clean ones are wanted; .*gate=False"):
        clean_runs(once, 4)
    with pytest.raises(BackendError, match="preempted in 100% of 4 runs"):
        clean_runs(Runs(PREEMPTED), 1)


def test_a_probe_of_a_quiet_machine():
    """Times 990 and 1010 vary by 1 % about 1000; the preempted one of four does not count."""
    probe = Probe.of([Sample(990.0, 990.0, 0, 0), Sample(1010.0, 1010.0, 0, 0)] * 2 + [PREEMPTED], cores=2)
    assert (probe.rejected, probe.variation, probe.cores) == (pytest.approx(0.2), pytest.approx(0.01), 2)
    probe.require_quiet()


@pytest.mark.parametrize(("rejections", "variation"), [(0.31, 0.01), (0.0, 0.4)])
def test_a_busy_machine_is_refused_and_named(rejections, variation):
    with pytest.raises(BackendError) as caught:
        Probe(rejections, variation, 7.2, 2).require_quiet()
    assert str(caught.value) == (
        f"the machine is busy: {rejections:.0%} of probe blocks were preempted, times of the others vary by "
        f"{variation:.0%}, load 7.2 on 2 cores; wait, or pass gate=False to measure anyway"
    )


def test_a_probe_without_a_clean_block():
    with pytest.raises(BackendError, match="100% of probe blocks were preempted"):
        Probe.of([PREEMPTED], cores=1).require_quiet()
