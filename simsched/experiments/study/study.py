"""`Study`: what is to be run, as a TOML file or in Python; checked when made."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

from simsched.base.codec import Count, Either, Many, Seed, Size, kind_of
from simsched.base.errors import StudyError
from simsched.base.io import read_text
from simsched.base.shown import VIEWS
from simsched.experiments.study.choices import choices, require_different, scheduler_entry
from simsched.experiments.study.fields import (
    NAME,
    cluster_table,
    execution_table,
    known_only,
    n_points,
    simulation_table,
    tables,
    taken,
    workload_table,
)

FIELDS: Final = (
    "name", "schedulers", "seeds", "seed", "workload", "cluster", "simulation", "execution", "figure",
)  # fmt: skip
MOST_ROWS: Final = 1_000_000
"""Of a study: they are kept in memory, 2 to 3 KB each once they are done."""
_MOST_PARTS: Final = 64
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\."""
# Reading a key takes time in proportion to the square of its parts.
_DEEP_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PART}[ \t]*){{{_MOST_PARTS - 1}}}")
_SEEDS: Final = Either([kind_of(Size), Many(kind_of(Count), filled=True)])
_FREE: Final = ("execution", "figure")  # fields that no row depends on


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """Workloads, clusters and schedulers, each with each.

    Parameters
    ----------
    name
        How tables call it.
    schedulers
        Names, ``package.module:function``, or tables of a ``scheduler``, its options, and a ``label``; a list of
        values of an option is swept, and a value that is itself a list stands inside of one.
    workload
        A table, or several: ``kind`` and parameters of the workload; lists are swept, the last varies fastest.
    cluster
        A table, or several: ``gpu``, ``gpus``, ``link``, ``gpus_per_node`` of a preset, or ``file``; ``overheads``,
        and replaced fields of every ``device`` and of all ``links``; lists are swept.
    seeds
        How many instances of each workload, or which; instance k is the same however many there are.
    seed
        Root of all that is random.
    simulation
        ``engine``, ``jitter``, ``samples``, ``threads``, ``transfers``, ``events``, ``bound``; lists are swept.
    execution
        ``time_limit`` of a row in s; no row depends on it, but for those that exceed it.
    figure
        Tables that say what is drawn.
    source
        How errors name the study.
    folder
        What files in it are relative to.

    Raises
    ------
    StudyError
        If a field is unknown or holds what it cannot; the message names the study, the field and the remedy.

    Notes
    -----
    Two studies are equal if their `to_dict` are, and in the same order: rows are numbered by it.

    >>> study = Study("small", ["lios", {"scheduler": "hios-lp", "w": [2, 4]}], {"kind": "layered"}, {"gpu": "a40"})
    >>> study
    Study('small', 3 schedulers, 3 rows)
    >>> Study.from_dict(study.to_dict()) == study
    True
    """

    name: str
    schedulers: tuple[Any, ...]
    workload: tuple[Mapping[str, Any], ...]
    cluster: tuple[Mapping[str, Any], ...]
    seeds: int | tuple[int, ...] = 1
    seed: int = 0
    simulation: Mapping[str, Any] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    figure: tuple[Mapping[str, Any], ...] = ()
    source: str = "study"
    folder: str = "."

    def __post_init__(self) -> None:
        source = self.source
        taken(source, "'name'", NAME, self.name)
        if isinstance(self.schedulers, str | Mapping) or not isinstance(self.schedulers, Iterable):
            raise StudyError(f"{source}: 'schedulers' must be a list of names or tables, not {self.schedulers!r}")
        checked: dict[str, Any] = {
            "schedulers": tuple(scheduler_entry(source, entry) for entry in self.schedulers),
            "workload": tuple(workload_table(source, t) for t in tables(source, "workload", self.workload)),
            "cluster": tuple(cluster_table(source, t) for t in tables(source, "cluster", self.cluster)),
            "seeds": _seeds(source, self.seeds),
            "seed": taken(source, "'seed'", kind_of(Seed), self.seed),
            "simulation": simulation_table(source, self.simulation),
            "execution": execution_table(source, self.execution),
            "figure": _figures(source, self.figure),
        }
        if not checked["schedulers"]:
            raise StudyError(f"{source}: 'schedulers' is an empty list; give at least one, such as \"lios\"")
        for key, value in checked.items():
            object.__setattr__(self, key, value)
        if self._n_rows() > MOST_ROWS:
            raise StudyError(
                f"{source}: it has more than {MOST_ROWS:,} rows; sweep fewer values, or make several of it"
            )
        require_different(source, self.choices)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Study":
        """Read a study from a TOML file; files that it names are relative to it.

        Raises
        ------
        FileError
            If the file cannot be read.
        StudyError
            If it is not TOML, or not a study.
        """
        text = read_text(path)
        if _DEEP_KEY.search(text):
            raise StudyError(f"{path}: not a study: a key in it has {_MOST_PARTS} parts or more")
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
            raise StudyError(f"{path}: not valid TOML: {error}") from None
        return cls.from_dict(data, str(path), os.fspath(Path(path).resolve().parent))

    @classmethod
    def from_dict(cls, data: Any, source: str = "study", folder: str = ".") -> "Study":
        """Make a study from decoded TOML or JSON; `source` names it in errors, its files are relative to `folder`."""
        if not isinstance(data, Mapping):
            raise StudyError(f"{source}: a study is a table of fields, not {type(data).__name__}")
        try:
            repr(data)
        except ValueError:
            raise StudyError(f"{source}: a number in it has thousands of digits; give another") from None
        except RecursionError:
            raise StudyError(f"{source}: nested too deeply") from None
        known_only(source, data, FIELDS)
        missing = [key for key in ("name", "schedulers", "workload", "cluster") if key not in data]
        if missing:
            given = f"[{missing[0]}]" if missing[0] in ("workload", "cluster") else repr(missing[0])
            raise StudyError(f"{source}: {given} is missing; a study has at least name, schedulers, workload, cluster")
        return cls(**data, source=source, folder=folder)

    def to_dict(self) -> dict[str, Any]:
        """Return the study as JSON values, defaults written out."""
        found = {key: getattr(self, key) for key in FIELDS}
        copied: dict[str, Any] = json.loads(json.dumps(found))
        return copied

    @property
    def choices(self) -> tuple[Any, ...]:
        """The schedulers with their options (`Choice`), swept, in the order of their rows."""
        return tuple(choices(self.schedulers))

    @property
    def instances(self) -> tuple[int, ...]:
        """Numbers of the instances of each workload."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def difference(self, other: "Study") -> str | None:
        """Return the first field in which rows would differ from another study's, None if there is none."""
        mine, theirs = self.to_dict(), other.to_dict()
        for key in FIELDS:
            if key not in _FREE and json.dumps(mine[key]) != json.dumps(theirs[key]):
                return key
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Study):
            return NotImplemented
        return json.dumps(self.to_dict()) == json.dumps(other.to_dict())

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict()))

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n_rows()

    def _n_rows(self) -> int:
        """Return the number of rows, which may be one that no length can be."""
        several = (self.workload, self.cluster, [self.simulation],
                   [entry if isinstance(entry, Mapping) else {} for entry in self.schedulers])  # fmt: skip
        instances = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        return instances * prod(sum(map(n_points, tables)) for tables in several)

    def __repr__(self) -> str:
        return f"Study({self.name!r}, {len(self.choices)} schedulers, {len(self)} rows)"


def _seeds(source: str, given: Any) -> int | tuple[int, ...]:
    found: int | tuple[int, ...] = taken(source, "'seeds'", _SEEDS, given)
    if isinstance(found, tuple) and len(set(found)) < len(found):
        raise StudyError(f"{source}: 'seeds' must be different numbers, not {given!r}")
    return found


def _figures(source: str, given: Any) -> tuple[dict[str, Any], ...]:
    if isinstance(given, list | tuple) and not given:
        return ()
    found = tables(source, "figure", given)
    try:
        copied = tuple(json.loads(json.dumps(dict(table), allow_nan=False)) for table in found)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{source}: [figure] must hold texts, numbers and lists: {error}") from None
    VIEWS["check of figures"](copied, source)
    return copied
