"""What all benchmarks share: ``pytest -m benchmark -s tests/benchmarks`` runs them and prints their figures."""

from pathlib import Path
from time import perf_counter

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("benchmark")


@pytest.fixture
def best():
    """Least seconds of some calls, the first of several aside, and what the last of them returned."""

    def least(action, rounds):
        times = []
        for _ in range(rounds + (rounds > 1)):
            start = perf_counter()
            found = action()
            times.append(perf_counter() - start)
        return min(times[-rounds:]), found

    return least


@pytest.fixture
def note():
    """Print figures; ratios are of what was measured side by side."""

    def keep(**figures):
        print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in figures.items()))

    return keep
