"""What the library returns cannot be changed, also after it was sent to another process, and equals itself there."""

import pickle

import numpy as np
import pytest
from documents import CLUSTER, THINGS, plan

import simsched as ss

MADE = THINGS | {
    "trace": lambda: ss.simulate(plan(), CLUSTER),
    "loads": lambda: ss.simulate(plan(), CLUSTER).loads,
    "makespans": lambda: ss.simulate_many(plan(), CLUSTER, 3, jitter=0.1, rng=0),
}
BY_IDENTITY = ("accuracy", "calibration", "comparison", "whatif")  # that are equal to nothing but themselves
each = pytest.mark.parametrize("name", MADE)


def arrays(value, where, seen):
    """Every array that public attributes lead to, with the way there."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield where, value
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from arrays(item, f"{where}[{i}]", seen)
    elif hasattr(value, "items") and hasattr(value, "keys"):
        for key, item in value.items():
            yield from arrays(item, f"{where}[{key!r}]", seen)
    elif type(value).__module__.startswith("simsched"):
        for name in (name for name in dir(value) if not name.startswith("_")):
            item = getattr(value, name, None)
            if not callable(item):
                yield from arrays(item, f"{where}.{name}", seen)


@pytest.mark.parametrize("name", [name for name in MADE if name not in ("program", "trace")])
def test_attributes_are_fixed(name):
    with pytest.raises(AttributeError):
        MADE[name]().name = "another"


@each
def test_arrays_are_read_only(name):
    made = MADE[name]()
    for value in (made, pickle.loads(pickle.dumps(made))):
        assert [where for where, array in arrays(value, name, set()) if array.flags.writeable] == []


@each
def test_equality_and_hash(name):
    """A copy is equal, where things are equal by value; what has no hash says so of itself."""
    made = MADE[name]()
    assert (pickle.loads(pickle.dumps(made)) == made) is (name not in BY_IDENTITY)
    if name not in BY_IDENTITY and name not in ("cluster", "gpu"):
        with pytest.raises(TypeError, match=r"unhashable type: '(?!dict|mappingproxy|ndarray|list)\w+'"):
            hash(made)
