"""A function of several items, in this process and in others."""

import os
import threading

import pytest

from validation.processes import each


def where(number):
    return number, os.getpid(), threading.active_count()


def test_one_worker_is_this_process():
    assert [(number, process) for number, process, _ in each(where, [3, 1, 2], 1)] == [
        (n, os.getpid()) for n in (3, 1, 2)
    ]


def test_processes_begin_anew():
    """They have nothing of this one, which has a thread more: the order of the items is kept."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        found = each(where, range(4), 2)
    finally:
        over.set()
        thread.join()
    assert [number for number, _, _ in found] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process, _ in found}


def test_an_error_comes_back():
    with pytest.raises(ZeroDivisionError):
        each(divmod_of, [1, 0], 2)


def divmod_of(number):
    return divmod(1, number)
