"""What all tests of the command line need."""

import pytest

import simsched as ss


@pytest.fixture(scope="session", autouse=True)
def _machine_code():
    """Made before a test looks at stderr, where it is said when it has to be compiled first."""
    graph, cluster = ss.OpGraph([ss.Operator("a", time=1.0)]), ss.Cluster.preset("a100")
    ss.simulate(ss.schedule(graph, cluster, "lios"), cluster)
