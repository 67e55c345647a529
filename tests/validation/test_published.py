"""The published worked examples, and the occupancy oracle where a CUDA toolkit is installed."""

import shutil

import pytest

from validation.occupancy import find_header, oracle, random_cases
from validation.published import CLAIMS


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.tolerance is not None], ids=lambda c: c.setting)
def test_counts_and_worked_examples_agree(claim):
    assert claim.ours() == pytest.approx(claim.published, rel=claim.tolerance, abs=0)


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.tolerance is None], ids=lambda c: c.setting)
def test_measurements_are_near_before_calibration(claim):
    """Datasheet rates and priors, of which none was fitted to these: recorded in validation/README.md.

    Both are a quarter too quick, so that their ratio, which is a claim of its own, is as published.
    """
    assert claim.ours() == pytest.approx(claim.published, rel=0.3)


@pytest.mark.skipif(find_header() is None or shutil.which("g++") is None, reason="needs a CUDA toolkit and g++")
def test_occupancy_is_nvidias():
    cases = random_cases(2_000, rng=7)
    assert [case.ours() for case in cases] == oracle(cases, find_header())
