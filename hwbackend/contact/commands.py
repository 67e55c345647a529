"""The commands of a contact, as lines of text."""

from collections.abc import Iterator
from typing import Any


def run_lines(folder, backend, backend_option, seconds, size, patience) -> Iterator[str]:
    from hwbackend.contact.run import run_contact

    opts = {}
    for t in backend_option:
        k, _, v = t.partition("=")
        try:
            opts[k] = int(v)
        except ValueError:
            try:
                opts[k] = float(v)
            except ValueError:
                opts[k] = v
    told = []
    run_contact(folder, backend, opts, seconds=seconds, size=size, patience=patience, tell=print)
    yield "done"


def analyse_lines(**k):
    yield "x"
