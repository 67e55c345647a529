"""LIOS's claims: worked example, what is cheap to measure, and what the published ratios follow from."""

import pytest

from validation.papers.claims import Run
from validation.papers.lios import CLAIMS
from validation.papers.record import measure

CLAIM = {claim.key: claim for claim in CLAIMS}
QUICK = Run(quick=True, workers=1)
TIMED = ("lios-table5-faster", "lios-table5-order", "lios-table5-ratio")  # RandWire under IOS takes some seconds
CHEAP = [claim for claim in CLAIMS if claim.measure is not None and claim.key not in TIMED]


@pytest.mark.parametrize("claim", CHEAP, ids=lambda claim: claim.key)
def test_quick_runs_have_every_published_value(claim):
    ours = measure(claim, QUICK).ours
    assert set(claim.published) <= set(ours)
    assert min(ours.values()) > 0


def test_the_worked_example():
    """3 + 5 + 5 + 5 + 8 + 15 + 10 + 7 + 13 + 2 = 73; v6 runs from 8 to 8 + 15 = 23, and with 5 for 15 the sum is 63."""
    claim = CLAIM["lios-table3"]
    assert claim.verdict(measure(claim, QUICK).ours) == "reproduced"
    misprint = CLAIM["lios-table3-step6"]
    ours = measure(misprint, QUICK).ours
    assert ours == {"v6 ends": 23.0, "sequential, v6 of 5": 63.0}
    assert misprint.verdict(ours).startswith("differs: a misprint")


def test_sizes_are_those_of_the_table():
    claim = CLAIM["lios-table4"]
    assert claim.verdict(measure(claim, QUICK).ours) == "reproduced"


def test_published_ratios():
    """Search on Inception-v3: 38.28 / 0.27 = 141.8; least and greatest ratio are the text's 7 and 9,210."""
    ratios = CLAIM["lios-table5-ratio"].published
    assert ratios["Inception-v3"] == pytest.approx(141.78, abs=0.01)
    assert [round(min(ratios.values())), round(max(ratios.values()))] == [7, 9210]


def test_what_is_missing_says_why():
    kinds = ("source not available: ", "not reproducible here: ")
    assert all(claim.missing.startswith(kinds) for claim in CLAIMS if claim.measure is None)
