"""The long campaigns, hours of them: ``pytest -m evidence tests/validation`` writes their logs anew."""

import pytest

from validation import fuzz, jit, mutants
from validation.evidence import FOLDER

pytestmark = pytest.mark.evidence


@pytest.mark.parametrize(
    ("campaign", "words"),
    [
        (fuzz, "--seconds 3600 --seed 1"),
        (jit, "--programs 20000 --seed 1"),
        (mutants, "--count 100000 --seed 1"),
    ],
)
def test_campaign(campaign, words):
    log = FOLDER / f"{campaign.__name__.rpartition('.')[2]}.json"
    assert campaign.main([*words.split(), "--log", str(log)]) == 0
