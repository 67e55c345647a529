"""Run-to-run variation of operators' times."""

import numpy as np
import pytest
from hand_made import assert_times, hand_made, run, side_by_side

import simsched as ss
from simsched.base.errors import SimulationError

pytestmark = pytest.mark.usefixtures("both_engines")


def test_seed_decides():
    """Same seed, same trace; a Generator of the seed is the seed; another seed, another trace."""
    ops = "a=3#7 b=3#7 c=3#7 d=3#7 e=3#7 f=3#7"
    traces = [side_by_side(ops, hand_made(), jitter=0.2, rng=rng) for rng in (5, 5, np.random.default_rng(5), 6)]
    assert traces[0] == traces[1] == traces[2] != traces[3]


def test_by_name():
    """Only b varies, and as it would if all did: factors are drawn in graph order for every operator; 0 is none."""
    everyone, one, nobody = (
        side_by_side("a=2 b=2 c=2", hand_made(), jitter=jitter, rng=3).operator_times()
        for jitter in (0.2, {"b": 0.2}, 0.0)
    )
    assert len({(0, 2), *everyone.values()}) == 4
    assert one == nobody | {"b": everyone["b"]}
    assert set(nobody.values()) == {(0, 2)}


def test_kernels_of_an_operator_share_its_factor():
    """Shares 0.25 and 0.75 stay 1 to 3."""
    op = ss.Operator("a", time=8.0, kernels=(ss.Kernel(15, share=0.25), ss.Kernel(9, share=0.75)))
    first, second = (span.duration for span in run([op], [], "a", hand_made(), jitter=0.5, rng=2).spans)
    assert second == pytest.approx(3 * first, rel=1e-9)
    assert first != pytest.approx(2.0, rel=1e-3)


def test_a_drawn_time_moves_the_same_bytes():
    """Blocks that take so much longer load DRAM so much less, and the SMs as they did."""
    op = ss.Operator("a", flops=1e3, nbytes=1e3, time=8.0, kernels=(ss.Kernel(4),))
    usual, drawn = (run([op], [], "a", hand_made(), jitter=jitter, rng=2) for jitter in (0.0, 0.5))
    assert drawn.makespan != pytest.approx(usual.makespan, rel=1e-3)
    (before,), (after,) = usual.loads, drawn.loads
    assert before.dram.max() > 0
    assert after.dram.max() * drawn.makespan == pytest.approx(before.dram.max() * usual.makespan, rel=1e-9)
    assert after.sm.max() == before.sm.max() > 0


def test_placement_does_not_change_the_factors():
    """Launched in the other order and on another device, the operators draw what they drew."""
    here, there = (run("a=2 b=2", "", text, hand_made(2), jitter=0.2, rng=9) for text in ("a b/1", "b@1 a"))
    assert_times(there, **here.operator_times())


@pytest.mark.parametrize(
    ("jitter", "rng", "message"),
    [
        (-0.1, 1, "jitter of 'a' must be finite and not negative"),
        (1e4, 1, "jitter of 'a' must be .* at most 1000"),
        ({"a": float("nan")}, 1, "jitter of 'a' must be finite and not negative"),
        ({"z": 0.1}, 1, "jitter names no operator: 'z'"),
        (0.1, None, "pass `rng`"),
    ],
)
def test_jitter_that_cannot_be(jitter, rng, message):
    with pytest.raises(SimulationError, match=message):
        side_by_side("a=1", hand_made(), jitter=jitter, rng=rng)
