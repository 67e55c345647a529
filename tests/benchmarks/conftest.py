"""What all benchmarks share: ``pytest -m benchmark --benchmark-enable tests/benchmarks -s`` runs and prints them."""

from pathlib import Path
from time import perf_counter

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("benchmark")


@pytest.fixture
def best():
    """Least seconds of some calls."""

    def least(action, rounds):
        times = []
        for _ in range(rounds):
            start = perf_counter()
            action()
            times.append(perf_counter() - start)
        return min(times)

    return least


@pytest.fixture
def note(benchmark):
    """Keep and print figures; ratios are of what was measured side by side."""

    def keep(**figures):
        benchmark.extra_info.update(figures)
        print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in figures.items()))

    return keep
