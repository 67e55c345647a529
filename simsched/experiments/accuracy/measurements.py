"""Measurements kept in a folder, so that a run that was killed goes on where it stopped."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from simsched.base.errors import FileError
from simsched.base.io import dump_json, file_errors
from simsched.model.backend import Backend
from simsched.model.profile import Profile, Replay
from simsched.model.program import Program


def digest(program: Program) -> str:
    """Return a text that programs share which launch the same work in the same order on the same streams."""
    return _digest(program.to_dict())


def _digest(*values: Any) -> str:
    return sha256(dump_json({"of": values}, indent=None).encode()).hexdigest()[:16]


class Measurements:
    """What a backend measures; with a folder, what is there already is read instead, and the rest is kept there.

    Parameters
    ----------
    backend
        Measures.
    folder
        Where files are written, each whole as its measurement ends; None keeps nothing. It is made if need be.

    Raises
    ------
    FileError
        If the folder cannot be made, or not written to where something is to be measured: that is found before.

    Notes
    -----
    The name of a file says what was measured: backend, cluster, program, repeats and round. A measurement that is
    kept is used as it reads back, so an interrupted run ends like one that was not.
    """

    def __init__(self, backend: Backend, folder: str | os.PathLike[str] | None) -> None:
        self._backend = backend
        self._folder = None if folder is None else Path(folder)
        self._device = [backend.name, backend.cluster.to_dict()]
        if self._folder is not None:
            if not str(folder):
                raise FileError("cannot keep measurements in a folder without a name")
            with file_errors("make folder", folder):
                self._folder.mkdir(exist_ok=True)

    def profile(self, kind: str, measure: Callable[[], Profile], *given: Any) -> Profile:
        """Return a profile of a kind that is measured with what is `given`, JSON values."""
        if self._folder is None:
            return measure()
        return Profile.load(self._kept(f"{kind}-{_digest(*self._device, *given)}.json", measure))

    def replay(self, program: Program, repeats: int, warmup: int, number: int) -> Replay:
        """Return measured runs of a program in a round."""

        def measure() -> Replay:
            return self._backend.replay(program, repeats=repeats, warmup=warmup)

        if self._folder is None:
            return measure()
        return Replay.load(self._kept(self.name_of(program, repeats, warmup, number), measure))

    def name_of(self, program: Program, repeats: int, warmup: int, number: int) -> str:
        """Return the name of the file of measured runs."""
        return f"round-{number}-{_digest(*self._device, program.to_dict(), repeats, warmup)}.json"

    def _kept(self, name: str, measure: Callable[[], Profile | Replay]) -> Path:
        """Return the file of a measurement, made if it is not there."""
        assert self._folder is not None
        path = self._folder / name
        if not path.exists():
            with file_errors("write", path):
                TemporaryFile(dir=self._folder).close()  # no measurement is made in vain
            measure().save(path)
        return path
