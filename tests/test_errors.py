"""What holds of every error: one line of at most 500 characters that can be printed."""

import inspect
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsched.base import errors
from simsched.base.errors import FileError, SimschedError, UnknownNameError
from simsched.model.graph import OpGraph

LONG = st.text(min_size=450, max_size=600)
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SimschedError)]


@given(kind=st.sampled_from([kind for kind in KINDS if kind is not UnknownNameError]), text=st.text() | LONG)
@settings(max_examples=300)
def test_every_error_is_one_short_line(kind, text):
    found = str(kind(text))
    assert len(found.splitlines()) <= 1
    assert len(found) <= 500
    assert found.isprintable()
    assert found == text or not text.isprintable() or len(text) > 480


def test_names_that_are_not_known_too():
    found = str(UnknownNameError("preset", "a\nb" * 300, ["x"]))
    assert found.startswith("unknown preset 'a\\nb")
    assert found.endswith("known are: x")
    assert len(found) <= 500


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_of_worker_processes_come_back(kind):
    error = kind("preset", "x", ["y"], " or z") if kind is UnknownNameError else kind("text")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (kind, str(error))


def test_line_breaks_and_halves_of_characters_are_escaped():
    assert str(FileError("a\r\nb\u2028c\ud800d\x1b")) == r"a\r\nb\u2028c\ud800d\x1b"


def test_long_names_in_a_document():
    """Found by fuzzing: a field of 5,000 characters that nobody asked for."""
    document = {"format": "simsched.graph", "version": 1, "operators": [{"name": "a"}], "x" * 5000: 1}
    with pytest.raises(SimschedError, match=r"^net\.json: unknown field 'xx.* \.\.\. .*known are: ") as caught:
        OpGraph.from_dict(document, "net.json")
    assert len(str(caught.value)) <= 500
