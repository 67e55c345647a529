"""Runs that differ from some place on: each has its own number, and what comes before is done once."""

import pytest

from validation.inductor.forks import split_runs

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn where threads run


def test_what_comes_before_is_done_once_and_each_number_goes_its_own_way():
    """The list of the first process keeps its one entry; those of the others have two."""
    begun = []

    def run(number):
        begun.append("begun")
        begun.append(number())
        return begun, number()

    assert list(split_runs(run, 3, lambda: True)) == [(["begun", k], k) for k in range(3)]
    assert begun == ["begun"]


def test_runs_split_again_at_the_next_place():
    """Two processes at the first place, three at the second place of each; a run that never comes there is one."""
    begun = []

    def run(number):
        begun.append(number())
        if begun == [0]:
            return begun
        return [*begun, number(), number()]

    assert list(split_runs(run, (2, 3), lambda: True)) == [[0], [1, 0, 0], [1, 1, 1], [1, 2, 2]]


def test_no_run_begins_when_time_is_over():
    left = iter([True, True, False, True])
    assert list(split_runs(lambda number: number(), 3, lambda: next(left))) == [0, 1]


def test_failures_are_told():
    def run(number):
        return 1 // number()

    with pytest.raises(RuntimeError, match="a run failed: ZeroDivisionError"):
        list(split_runs(run, 2, lambda: True))
    with pytest.raises(RuntimeError, match="never asks for its number"):
        list(split_runs(lambda _number: 1, 2, lambda: True))
    with pytest.raises(ValueError, match="before"):
        list(split_runs(lambda _number: int("before"), 2, lambda: True))
