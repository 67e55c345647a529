"""A function of several items, in this process and in others."""

import os

import pytest

from validation.evidence import each


def divided(number):
    return 12 // number, os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_values_come_in_the_order_of_the_items_and_errors_come_back(workers):
    found = each(divided, [3, 1, 2], workers)
    assert [value for value, _ in found] == [4, 12, 6]
    assert (os.getpid() in {process for _, process in found}) == (workers == 1)
    with pytest.raises(ZeroDivisionError):
        each(divided, [1, 0], workers)
