"""The codec: what hints hold, how it is written, read and described."""

import json
import pickle
from dataclasses import dataclass, field, fields, is_dataclass
from types import GenericAlias
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from simsched.base.codec import (
    Among,
    Amount,
    Bytes,
    Checked,
    Count,
    Document,
    Gaps,
    Name,
    Part,
    Range,
    Rate,
    Refused,
    Share,
    Size,
    brief,
    fields_of,
    kind_of,
    read,
    schema_of,
)
from simsched.base.errors import ClusterError, FormatError, GraphError, SimschedError
from simsched.base.numeric import LARGEST_COUNT
from simsched.experiments.comparison import Comparison
from simsched.experiments.whatif.question import Answer
from simsched.experiments.whatif.throughput import Throughput
from simsched.model.cluster import Cluster, Device

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Leaf(Checked):
    """A part.

    Parameters
    ----------
    name
        Its name.
    cost, share
        What it costs in us,
        and its share.
    """

    SUBJECT, ERROR = "leaf {0.name!r}", GraphError
    name: Name
    cost: Amount = 1.0
    share: Share = brief(1.0)


@dataclass(frozen=True, eq=False)
class Tree(Checked, Document):
    """A whole."""

    SUBJECT, ERROR, FORMAT, RETIRED = "tree", GraphError, "test.tree", {"height": "measure it"}
    leaves: tuple[Leaf, ...]
    kind: Annotated[str, Among(("oak", "elm"))] = "oak"
    times: Annotated[npt.NDArray[np.float64], Gaps()] = field(default_factory=lambda: np.zeros(0))
    table: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    best: Leaf | None = None
    limit: Annotated[float, Range(0, above=True, infinite=True)] = INF
    sized: Bytes = 0
    alive: bool = True
    notes: Any = None


def tree():
    leaves = [Leaf("a"), Leaf("b", 2, 0.5)]
    return Tree(leaves, "elm", [1.0, NAN], {"x": [1, 2]}, leaves[0], 3.0, 1.5, False, {"any": [1, "x", None]})


def test_what_comes_in_another_form_is_kept_as_the_hint_says():
    found = tree()
    assert found.leaves == (Leaf("a"), Leaf("b", 2, 0.5))
    assert found.table["x"] == (1, 2)
    with pytest.raises(TypeError):
        found.table["y"] = ()
    with pytest.raises(ValueError, match="read-only"):
        found.times[0] = 2.0
    again = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == found.to_dict()
    with pytest.raises(ValueError, match="read-only"):
        again.times[0] = 2.0


def test_an_alias_with_parameters_is_what_it_stands_for():
    """From numpy 2.5 on ``NDArray[float]`` is an alias subscripted, whose ``__value__`` is an array of a `TypeVar`."""
    kept = TypeVar("kept", bound=np.generic)

    class Alias:  # what ``type Alias[kept] = ...`` makes from Python 3.12 on
        __value__ = np.ndarray[Any, np.dtype[kept]]

    hint = GenericAlias(Alias, (np.float64,))
    assert np.isnan(kind_of(Annotated[hint, Gaps()]).take([1.0, NAN])).tolist() == [False, True]
    with pytest.raises(Refused, match="NaN"):
        kind_of(hint).take([NAN])
    assert kind_of(GenericAlias(Alias, (np.int64,))).take([1, 2]).dtype == np.int64


def test_a_document_and_back():
    """Brief defaults are left out, NaN and infinity are null, and what older releases wrote is passed over."""
    data = json.loads(json.dumps(tree().to_dict(), allow_nan=False))
    assert data == {
        "format": "test.tree",
        "version": 1,
        "leaves": [{"name": "a", "cost": 1.0}, {"name": "b", "cost": 2, "share": 0.5}],
        "kind": "elm",
        "times": [1.0, None],
        "table": {"x": [1, 2]},
        "best": {"name": "a", "cost": 1.0},
        "limit": 3.0,
        "sized": 1.5,
        "alive": False,
        "notes": {"any": [1, "x", None]},
    }
    assert Tree.from_dict(data | {"height": 3}).to_dict() == data
    least = {"format": "test.tree", "version": 1, "leaves": [], "best": None, "kind": None, "limit": None}
    assert Tree.from_dict(least).to_dict() == {
        **data,
        **least,
        "kind": "oak",
        "times": [],
        "table": {},
        "sized": 0,
        "alive": True,
        "notes": None,
    }


WRONG = {
    "no object": (lambda d: [], "t.json: expected an object, not []"),
    "format": (lambda d: d | {"format": "x"}, "t.json: field 'format' is 'x'; expected 'test.tree'"),
    "version": (lambda d: d | {"version": 2}, "t.json: field 'version' is 2; this release reads test.tree 1"),
    "truth for a version": (lambda d: d | {"version": True}, "field 'version' is True"),
    "missing": (lambda d: {k: v for k, v in d.items() if k != "leaves"}, "t.json: field 'leaves' is missing"),
    "unknown": (lambda d: d | {"width": 1}, "t.json: unknown field 'width'; known are: leaves, kind"),
    "inside": (lambda d: d | {"leaves": [{"name": "a"}, {"nam": "b"}]}, "t.json: leaves[1]: field 'name' is missing"),
    "value inside": (
        lambda d: d | {"leaves": [{"name": "a", "cost": "x"}]},
        "t.json: leaves[0]: leaf 'a': cost must be a number, not 'x'",
    ),
    "list": (lambda d: d | {"leaves": {}}, "t.json: leaves must be a list, not {}"),
    "null": (lambda d: d | {"leaves": None}, "t.json: leaves must be a list, not None"),
    "row": (lambda d: d | {"leaves": [3]}, "t.json: leaves[0]: expected an object, not 3"),
    "table": (lambda d: d | {"table": {"x": [0]}}, "tree: table['x'][0] must be a whole number of at least 1, not 0"),
    "array": (lambda d: d | {"times": [1, "x"]}, "t.json: times must be a list of numbers, or lists of them"),
    "ragged": (lambda d: d | {"times": [[1], [1, 2]]}, "lists of one length"),
    "choice": (lambda d: d | {"kind": "ash"}, "tree: kind must be one of oak, elm, not 'ash'"),
    "truth": (lambda d: d | {"alive": 1}, "tree: alive must be true or false, not 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_its_place(case):
    change, message = WRONG[case]
    with pytest.raises((FormatError, GraphError)) as caught:
        Tree.from_dict(change(json.loads(json.dumps(tree().to_dict()))), "t.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("t.json")


NUMBERS = {
    "amount": (Amount, (0, 0.0, 1e308, 3), (-1e-9, NAN, INF, "1", None, True)),
    "rate": (Rate, (1e-300, 5), (0, -1.0, INF)),
    "part": (Part, (0, 1, 0.5), (-0.1, 1.1, NAN)),
    "share": (Share, (1, 1e-9), (0, 1.1)),
    "count": (Count, (0, LARGEST_COUNT), (-1, 1.5, 1.0, LARGEST_COUNT + 1, 10**400, INF, "1")),
    "size": (Size, (1,), (0,)),
    "bytes": (Bytes, (0, 0.5), (-1,)),
    "name": (Name, ("a", "\u00e4"), ("", 3, None, "a\ud800", "n" * 65537)),
    "float": (float, (-1e308, 0), (NAN, INF, -INF, 10**400, 1j)),
    "annotated": (Annotated[int, Range(1, 8)], (1, 8), (0, 9)),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_limits(case):
    hint, good, bad = NUMBERS[case]
    for value in good:
        assert kind_of(hint).take(value) == value
    for value in bad:
        with pytest.raises(Refused, match="must "):
            kind_of(hint).take(value)
    assert type(kind_of(float).take(np.float64(1.5))) is float


@given(cost=st.floats() | st.integers() | st.text(max_size=3) | st.booleans() | st.none())
def test_the_schema_takes_what_the_class_takes(cost):
    """Of values that JSON holds."""
    if isinstance(cost, float) and not np.isfinite(cost):
        return
    data = json.loads(json.dumps({"name": "a", "cost": cost}))
    valid = Draft202012Validator(schema_of(Leaf)).is_valid(data)
    try:
        read(Leaf, data, "l.json")
    except GraphError:
        assert not valid or abs(cost) > 1e308  # a whole number that no float reaches
    else:
        assert valid


def test_the_schema_says_what_docstrings_say():
    found = schema_of(Tree)
    Draft202012Validator.check_schema(found)
    leaf = found["$defs"]["Leaf"]
    assert leaf["description"] == "A part."
    assert leaf["properties"]["share"]["description"] == "What it costs in us, and its share."
    assert leaf["required"] == ["name"]
    assert found["required"] == ["format", "version", "leaves"]


def checked_classes(cls=Checked):
    for each in cls.__subclasses__():
        yield from checked_classes(each)
        shared = issubclass(each, Document) and not hasattr(each, "FORMAT")  # by documents, and none by itself
        if is_dataclass(each) and each.__module__.startswith("simsched.") and not shared:
            yield each


@pytest.mark.parametrize("cls", sorted(set(checked_classes()), key=str), ids=lambda cls: cls.__qualname__)
def test_every_field_has_a_hint_that_is_known(cls):
    names = [each.name for each in fields_of(cls)]
    assert names == [each.name for each in fields(cls) if each.init and "aside" not in each.metadata]
    Draft202012Validator.check_schema(schema_of(cls))


def test_a_parameter_that_left_says_so():
    """In Python, by the class's own error; in files it is passed over."""
    with pytest.raises(GraphError, match="Tree has no 'height' any more: measure it"):
        Tree((), height=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'heigth'"):
        Tree((), heigth=3)


@pytest.mark.parametrize("cls", [Device, Comparison, Throughput, Answer])
def test_every_parameter_that_left_says_what_to_do(cls):
    for name, remedy in cls.RETIRED.items():
        assert name not in {each.name for each in fields(cls)}
        with pytest.raises(SimschedError, match=f"{cls.__name__} has no '{name}' any more: {remedy}"):
            cls(**{name: 1.0})


def test_nor_do_devices_of_clusters_take_it():
    with pytest.raises(ClusterError, match="Device has no 'dram_sensitivity' any more: leave it out"):
        Cluster.preset("a100").replace_devices(dram_sensitivity=0.5)
