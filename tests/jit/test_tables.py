"""Tables: one memory, seen by name from Python and from kernels."""

import numpy as np
import pytest

from simsched.base.jit import Column, Row, Rows, Table, f8, i1, i4, i8, length


class Flight(Row):
    """A record with fields of every type."""

    time: f8
    count: i8
    gate: i4
    late: i1


class Airport(Table):
    """Numbers and columns, given and made."""

    n: i8
    width: i8
    now: f8
    flights: Rows[Flight] = length("n")
    grid: Column[i4] = length("max(1, n) * width")
    names: Column[i1]
    delays: Column[f8]


class Terminal(Table):
    """A table in which another one lies between numbers."""

    level: i8
    airport: Airport
    area: f8


class City(Table):
    """Tables in tables."""

    people: i8
    first: Terminal
    second: Terminal
    streets: Column[i8] = length("people")


def test_a_row_lies_as_c_would_lay_it():
    """8 + 8 + 4 + 1 bytes, and 3 of padding."""
    assert Flight.dtype.itemsize == 24
    assert Flight.fields == {"time": (0, "f8"), "count": (8, "i8"), "gate": (16, "i4"), "late": (20, "i1")}


def test_fields_columns_and_arrays_are_the_same_memory():
    port = Airport(n=3, width=2, now=1.5)
    port.flights[2].time = 7
    port.flights[2].late = True
    port.grid[5] = -4
    assert port["flights"]["time"].tolist() == [0.0, 0.0, 7.0]
    assert port["flights"][2].tolist() == (7.0, 0, 0, 1)
    port["grid"][4] = 9
    assert (port.grid[4], port.grid[5], port.n, port.now) == (9, -4, 3, 1.5)
    port.now = 2
    assert port.now == 2.0


def test_columns_that_are_made_begin_with_zeros_and_do_not_overlap():
    port = Airport(n=5, width=3)
    port["grid"][:] = -1
    assert not port["flights"]["time"].any()
    assert all(port[name].ctypes.data % 64 == 0 for name in ("flights", "grid"))


def test_a_column_that_is_given_is_used_and_not_copied():
    """And may be replaced; what is missing is None, and what is empty is not."""
    delays, other = np.zeros(4), np.ones(2)
    port = Airport(n=0, width=0, delays=delays, names=np.zeros(0, np.int8))
    port.delays[1] = 2.5
    assert delays[1] == 2.5
    port["delays"] = other
    assert port.delays[0] == 1.0
    port["delays"] = None
    assert port.delays is None
    assert Airport(n=0, width=0).delays is None
    assert port.names is not None


def test_parts_of_columns_and_rows_are_views():
    port = Airport(n=3, width=4)
    part, rows = port.grid[4:], port.flights[1:]
    part[0] = 8
    rows[1].gate = 5
    assert (port.grid[4], port.flights[2].gate, part[1:][0]) == (8, 5, 0)


@pytest.mark.parametrize("place", [-1, 3, 100])
def test_places_outside_raise(place):
    port = Airport(n=3, width=1)
    for column in (port.grid, port.flights):
        with pytest.raises(IndexError):
            column[place]
    with pytest.raises(IndexError):
        port.grid[place] = 1


@pytest.mark.parametrize("part", [slice(0, 2), slice(-1, None), slice(5, None), slice(0, None, 2)])
def test_parts_have_a_start_only(part):
    with pytest.raises(IndexError, match="start"):
        Airport(n=3, width=1).grid[part]


def test_numbers_that_do_not_fit_raise():
    port = Airport(n=1, width=1)
    with pytest.raises(ValueError, match="format 'i'"):
        port.grid[0] = 2**31
    with pytest.raises(TypeError):
        port.grid[0] = 1.5
    with pytest.raises(ValueError, match="format"):
        port.n = 2**63


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"m": 1}, r"^Airport has no 'm'$"),
        ({"delays": np.zeros(3, np.float32)}, r"^Airport: delays is not contiguous float64: float32$"),
        ({"delays": np.zeros(6)[::2]}, r"^Airport: delays is not contiguous"),
        ({"n": 3, "width": 2, "grid": np.zeros(5, np.int32)}, r"^Airport: grid has 5 rows, and needs 6$"),
    ],
)
def test_refusals(values, error):
    with pytest.raises((TypeError, ValueError), match=error):
        Airport(**values)


def test_a_nested_table_is_part_of_the_words_of_its_table():
    """An airport has 7 words, a terminal 1 + 7 + 1 = 9, a city 1 + 9 + 9 + 1; its second area is its word 18."""
    city = City(people=2, first={"airport": {"n": 1, "width": 2, "now": 1.5}}, second={"area": 2.5})
    assert (City.fields["second"], Terminal.fields["area"]) == ((80, Terminal), (64, "f8"))
    assert city.second.address == city.address + 80
    assert np.frombuffer(city._words, np.float64)[18] == 2.5
    city.first.airport.flights[0].count = 4
    city.first.airport.now += 1.0
    assert city.first.airport["flights"]["count"].tolist() == [4]
    assert (city.first.airport.now, city.second.airport.now, city.second.airport.n) == (2.5, 0.0, 0)
    assert (len(city["streets"]), len(city.first.airport["grid"]), len(city.second.airport["grid"])) == (2, 2, 0)


def test_columns_of_nested_tables_are_given_or_made_and_do_not_overlap():
    delays = np.zeros(3)
    city = City(people=3, first={"airport": {"n": 3, "width": 1, "delays": delays}}, second={"airport": {"n": 3}})
    city.first.airport.delays[1] = 2.0
    assert delays[1] == 2.0
    city["streets"][:] = -1
    city.first.airport["grid"][:] = 7
    assert not city.first.airport["flights"]["time"].any()
    assert not city.second.airport["flights"]["time"].any()
    assert city["streets"].tolist() == [-1, -1, -1]


def test_values_are_updated_in_nested_tables():
    delays = np.ones(2)
    city = City(people=1, first={"airport": {"n": 1, "delays": np.zeros(2)}})
    assert city.first.airport.delays[1] == 0.0
    city.update(people=5, first={"level": 3, "airport": {"delays": delays, "now": 0.5}})
    assert (city.people, city.first.level, city.first.airport.now, city.first.airport.delays[1]) == (5, 3, 0.5, 1.0)
    city.first.update(airport={"delays": None})
    assert city.first.airport.delays is None
    with pytest.raises(TypeError, match=r"^Airport has no 'gates'$"):
        city.first.update(airport={"gates": 3})


def test_a_nested_table_lives_as_long_as_it_is_used():
    airport = City(people=1, first={"airport": {"n": 2, "width": 1}}).first.airport
    airport["grid"][:] = 5
    assert (airport.n, airport.grid[1]) == (2, 5)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"third": {}}, r"^City has no 'third'$"),
        ({"first": {"n": 3}}, r"^Terminal has no 'n'$"),
        ({"first": 3}, r"^City: first is a table; give a mapping of its values, not 3$"),
        (
            {"first": {"airport": {"n": 3, "width": 2, "grid": np.zeros(5, np.int32)}}},
            r"^Airport: grid has 5 rows, and",
        ),
    ],
)
def test_refusals_in_nested_tables(values, error):
    with pytest.raises((TypeError, ValueError), match=error):
        City(**values)


@pytest.mark.parametrize(
    ("base", "name", "hint", "error"),
    [
        (Table, "n", int, r"^Odd: 'n' is one of i8, f8, not "),
        (Table, "n", i4, r"^Odd: 'n' is one of i8, f8, not "),
        (Table, "names", Column[int], r"^Odd: 'names' is one of i8, f8, not "),
        (Table, "flight", Flight, r"^Odd: 'flight' is one of i8, f8, not "),
        (Table, "address", i8, r"^Odd: 'address' is a name that all tables have; take another$"),
        (Row, "n", float, r"^Odd: 'n' is one of i1, i4, i8, f8, not "),
        (Row, "airport", Airport, r"^Odd: 'airport' is one of i1, i4, i8, f8, not "),
        (Row, "dtype", i8, r"^Odd: 'dtype' is a name that all rows have; take another$"),
    ],
)
def test_declarations_that_are_refused(base, name, hint, error):
    with pytest.raises(TypeError, match=error):
        type("Odd", (base,), {"__annotations__": {name: hint}, "__slots__": ()})


@pytest.mark.parametrize(
    ("expression", "word"), [("m", "m"), ("2 * n + x", "x"), ("max(n, rows)", "rows"), ("min(n, 2)", "min")]
)
def test_lengths_name_whole_numbers_of_their_table(expression, word):
    hints = {"n": i8, "x": f8, "rows": Column[i8]}
    with pytest.raises(TypeError, match=rf"^Odd: the length of rows names '{word}', which is no i8 of the table$"):
        type("Odd", (Table,), {"__annotations__": hints, "__slots__": (), "rows": length(expression)})
