"""Settings and fixtures of all tests."""

import inspect
import os
import signal

import pytest
from hypothesis import settings
from quick import quick

import simsched as ss
import workloads

# Tests run on loaded machines: how long an example takes proves nothing. Continuous integration draws the
# same examples each time, so that it fails for what was changed; everyone else draws new ones.
settings.register_profile("simsched", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("simsched")


# What runs in the background of a shell ignores Ctrl-C, and so would every test of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Open the browser first, and in one process: while that is small, and not in all of them."""
    items.sort(key=lambda item: "browser" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def machine_code():
    """Made before a test looks at stderr, where it is said when it has to be compiled first."""
    graph, cluster = workloads.random_layered(n_ops=12, n_layers=4, rng=0), ss.Cluster.preset("a100", 2)
    for name in ss.SCHEDULERS:
        ss.simulate(ss.schedule(graph, cluster, name, **quick(name, graph)), cluster)


@pytest.fixture
def quick_search(monkeypatch):
    """Let `search` stop early where nothing else is said: for tests of what is made of its answers."""
    monkeypatch.setitem(inspect.unwrap(ss.SCHEDULERS["search"]).__kwdefaults__, "evaluations", 300)


@pytest.fixture(autouse=True)
def _machine_code_of_commands(request):
    if "cli" in request.path.parts:
        request.getfixturevalue("machine_code")


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard():
    """A command that was interrupted in this process turns a deaf ear to a second Ctrl-C."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not handler:
        signal.signal(signal.SIGINT, handler)


@pytest.fixture(scope="module", params=["reference", "compiled"])
def both_engines(request):
    """Let `simulate` take one engine after the other, unless a test names one."""
    defaults = inspect.unwrap(ss.simulate).__kwdefaults__
    usual = defaults["engine"]
    defaults["engine"] = request.param
    yield
    defaults["engine"] = usual
