"""What holds of every test of a backend."""

import pytest
from fake_cuda import USED


@pytest.fixture(autouse=True)
def _everything_is_given_back():
    """Memory, streams, events and graphs, whatever went wrong."""
    USED.clear()
    yield
    assert not any(fake.live for fake in USED)
