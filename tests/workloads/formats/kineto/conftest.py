"""What tests of profiler traces share: an empty trace, and how one is read from a file."""

import pytest
from kineto_traces import KinetoTrace, LaunchTrace

from workloads.formats.kineto import read_kineto


@pytest.fixture
def trace():
    return KinetoTrace()


@pytest.fixture
def made(tmp_path):
    return LaunchTrace(tmp_path / "made.json")


@pytest.fixture
def read(tmp_path):
    """Read a trace, as it is now, from a file."""
    return lambda trace, **options: read_kineto(trace.write(tmp_path / "trace.json"), **options)


@pytest.fixture
def samples(read):
    """The samples of each operator of a trace."""
    return lambda trace, **options: {op.name: op.samples for op in read(trace, **options).operators}
