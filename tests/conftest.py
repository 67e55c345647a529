"""Settings and fixtures of all tests."""

import os

import pytest
from hypothesis import settings

import simsched as ss

# Tests run on loaded machines: how long an example takes proves nothing. Continuous integration draws the
# same examples each time, so that it fails for what was changed; everyone else draws new ones.
settings.register_profile("simsched", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("simsched")


@pytest.fixture(scope="session")
def machine_code():
    """Made before a test looks at stderr, where it is said when it has to be compiled first."""
    graph, cluster = ss.OpGraph([ss.Operator("a", time=1.0)]), ss.Cluster.preset("a100")
    ss.simulate(ss.schedule(graph, cluster, "lios"), cluster)


@pytest.fixture(autouse=True)
def _machine_code_of_commands(request):
    if "cli" in request.path.parts:
        request.getfixturevalue("machine_code")


@pytest.fixture(scope="module", params=["reference", "compiled"])
def both_engines(request):
    """Let `simulate` take one engine after the other, unless a test names one."""
    defaults = ss.simulate.__kwdefaults__
    usual = defaults["engine"]
    defaults["engine"] = request.param
    yield
    defaults["engine"] = usual
