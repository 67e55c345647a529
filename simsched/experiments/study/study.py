"""`Study`: a plan of runs, from a TOML file or made in Python, checked when made; and its rows, in a fixed order."""

import inspect
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Among, Count, Filled, Kind, Name, Range, Refused, Seed, Size, kind_of
from simsched.base.errors import SimschedError, StudyError, UnknownNameError
from simsched.base.io import read_text
from simsched.base.limits import LARGEST_VARIATION, MOST
from simsched.base.numeric import twice
from simsched.base.views import VIEWS, as_html
from simsched.experiments.result import TextTable as TextTable
from simsched.experiments.result import table_of
from simsched.model.cluster import DEVICES, LINKS
from simsched.model.lowering import OPTIONS
from simsched.schedulers import SCHEDULERS

Table = dict[str, Any]
Point = Mapping[str, Any]
"""A value for each field of a table; those of tables inside have names such as ``device.launch``."""

GRAPH, SCHEDULER, JITTER = range(3)
"""What the random numbers of an instance are for."""

FIELDS: Final = ("name", "schedulers", "seeds", "seed", "workload", "cluster", "simulation", "execution", "figure")
SIMULATION_DEFAULTS: Final = {"engine": "compiled", "threads": "device", "transfers": "async", "bound": True}
MOST_ROWS: Final = 1_000_000
"""Of a study: they are kept in memory, 2 to 3 KB each once they are done."""
_GIVEN: Final = ("graph", "cluster", "cost", "tools", "progress", "also")  # options that the caller of a scheduler sets

_MOST_PARTS: Final = 64
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\."""
# Reading a key takes time in proportion to the square of its parts.
_DEEP_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PART}[ \t]*){{{_MOST_PARTS - 1}}}")

_LARGEST: Final = 2.0**128  # Python may refuse to print much longer ones
_Scalar = str | Annotated[float, Range(-_LARGEST, _LARGEST)] | bool
_ANY: Final = kind_of(_Scalar | Sequence[_Scalar])
_NAME: Final = kind_of(Name)
_GPUS: Final = kind_of(Annotated[int, Range(1, MOST["gpus"])])
_NESTED: Final = ("device", "links")  # tables inside
_CLUSTER: Final[Mapping[str, Kind]] = {
    "gpu": Among(DEVICES),
    "gpus": _GPUS,
    "link": Among(LINKS),
    "gpus_per_node": _GPUS,
    "file": _NAME,
    "overheads": kind_of(bool),
    **dict.fromkeys(_NESTED, _ANY),
}
_SIMULATION: Final[Mapping[str, Kind]] = {
    "engine": Among(("compiled", "reference")),
    "jitter": kind_of(Annotated[float, Range(0, LARGEST_VARIATION)]),
    "samples": kind_of(Annotated[int, Range(1, MOST["samples"])]),
    **{option: Among(known) for option, known in OPTIONS.items()},
    "bound": kind_of(bool),
}
_LIMITS: Final = {"time_limit": kind_of(Annotated[float, Range(0, 1e7, above=True)]), "memory_limit": kind_of(Size)}
_SEEDS: Final = kind_of(Size | Annotated[Sequence[Count], Filled()])


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduler with its options.

    Parameters
    ----------
    label
        How rows, tables and figures call it: its name, and the options given, as in ``"hios-lp w=4"``.
    scheduler
        A name in `SCHEDULERS`, or ``package.module:function``.
    options
        Its own, by name, in the order given.
    """

    label: str
    scheduler: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """Workloads, clusters and schedulers, each with each.

    Parameters
    ----------
    name
        How tables call it.
    schedulers
        Names, ``package.module:function``, or tables of a ``scheduler``, its options, and a ``label``; a list of values
        of an option is swept, and a value that is itself a list has to be inside of a list.
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
        ``time_limit`` of a row in s, and ``memory_limit`` in bytes of a process that runs rows, including the memory
        that it has already; only rows that exceed a limit depend on it. With ``executor="serial"`` there is no limit of
        memory.
    figure
        Tables that describe figures.
    source
        How errors name the study.
    folder
        Folder that its file names are relative to.

    Raises
    ------
    StudyError
        If a field is unknown or has a wrong value; the message names the study, the field and the remedy.

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
        with refusing(self.source):
            _take("'name'", _NAME, self.name)
            if not _is_list(self.schedulers):
                raise StudyError(f"'schedulers' must be a list of names or tables, not {self.schedulers!r}")
            checked: Table = {
                "schedulers": tuple(map(_scheduler, self.schedulers)),
                "workload": tuple(map(_workload, _tables("workload", self.workload))),
                "cluster": tuple(map(_cluster, _tables("cluster", self.cluster))),
                "seeds": _take("'seeds'", _SEEDS, self.seeds),
                "seed": _take("'seed'", kind_of(Seed), self.seed),
                "simulation": _simulation(self.simulation),
                "execution": _execution(self.execution),
                "figure": _figures(self.figure),
            }
            if not checked["schedulers"]:
                raise StudyError("'schedulers' is an empty list; give at least one, such as \"lios\"")
            for key, value in checked.items():
                object.__setattr__(self, key, value)
            if isinstance(self.seeds, tuple) and len(set(self.seeds)) < len(self.seeds):
                raise StudyError(f"'seeds' must be different numbers, not {self.seeds!r}")
            if self.__len__() > MOST_ROWS:  # may exceed the range of `len`
                raise StudyError(f"it has more than {MOST_ROWS:,} rows; sweep fewer values, or make several of it")
            if label := twice(choice.label for choice in self.choices):
                raise StudyError(f"scheduler {label!r} stands twice; remove one, or give it a 'label' of its own")
        VIEWS["check_figures"](self.figure, self.source)

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
        with refusing(source):
            if not isinstance(data, Mapping):
                raise StudyError(f"a study is a table of fields, not {type(data).__name__}")
            try:
                repr(data)
            except ValueError:
                raise StudyError("a number in it has thousands of digits; give another") from None
            except RecursionError:
                raise StudyError("nested too deeply") from None
            _require_known(data, FIELDS)
            for key, remedy in (
                ("name", "'name'"),
                ("schedulers", "'schedulers'"),
                ("workload", "[workload]"),
                ("cluster", "[cluster]"),
            ):
                if key not in data:
                    raise StudyError(f"{remedy} is missing; a study has at least name, schedulers, workload, cluster")
        return cls(**data, source=source, folder=folder)

    def to_dict(self) -> dict[str, Any]:
        """Return the study as JSON values, defaults written out."""
        copied: dict[str, Any] = json.loads(json.dumps({key: getattr(self, key) for key in FIELDS}))
        return copied

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The schedulers with their options, swept, in the order of their rows."""
        return tuple(choice for entry in self.schedulers for choice in _choices(_entry(entry)))

    @property
    def instances(self) -> tuple[int, ...]:
        """Numbers of the instances of each workload."""
        if isinstance(self.seeds, int):
            return tuple(range(self.seeds))
        return self.seeds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and json.dumps(self.to_dict()) == json.dumps(other.to_dict())

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict()))

    def __len__(self) -> int:
        """Return the number of rows."""
        several = (self.workload, self.cluster, [self.simulation], map(_entry, self.schedulers))
        if isinstance(self.seeds, int):
            instances = self.seeds
        else:
            instances = len(self.seeds)
        return instances * prod(sum(prod(map(len, _flat(table).values())) for table in tables) for tables in several)

    def __repr__(self) -> str:
        return f"Study({self.name!r}, {len(self.choices)} schedulers, {len(self)} rows)"

    def table(self) -> TextTable:
        """Return its schedulers, workloads, clusters and instances as a table."""
        rows = [
            ("schedulers", ", ".join(choice.label for choice in self.choices)),
            *(("workload", _settings(table)) for table in self.workload),
            *(("cluster", _settings(table)) for table in self.cluster),
            ("instances", f"{len(self.instances)} of each workload"),
            ("rows", f"{len(self):,}"),
        ]
        return table_of(f"study {self.name}", ("", ""), rows, left=(0, 1))

    _repr_html_ = as_html


def _settings(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in table.items())


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Prefix errors inside the block with the name of the thing that is refused."""
    try:
        yield
    except (SimschedError, TypeError) as error:
        raise StudyError(f"{what}: {error}") from error


def _take(field: str, kind: Kind, given: Any) -> Any:
    """Return a value as a kind of field takes it, or refuse it."""
    try:
        return kind.take(given)
    except Refused as refused:
        raise StudyError(refused.says(field)) from None


def _is_list(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | Mapping)


def _require_known(table: Mapping[str, Any], known: Collection[str], of: str = "") -> None:
    """Refuse fields that are none of the known."""
    unknown = [key for key in table if key not in known]
    if unknown:
        raise StudyError(f"unknown field {unknown[0]!r}{of}; known are: {', '.join(known)}")


def _require_table(name: str, given: Any, known: Collection[str]) -> None:
    """Refuse a value that is no table, or has unknown fields."""
    if not isinstance(given, Mapping):
        raise StudyError(f"{name!r} must be a table, [{name}]")
    _require_known(given, known, f" of [{name}]")


def _tables(name: str, given: Any) -> Sequence[Mapping[str, Any]]:
    """Return a table, or an array of tables, as a sequence of at least one."""
    if isinstance(given, Mapping):
        tables = [given]
    else:
        tables = given
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not all(isinstance(t, Mapping) for t in tables):
        raise StudyError(f"{name!r} must be a table, [{name}], or several, [[{name}]]")
    if not tables:
        raise StudyError(f"there is no [{name}]; give at least one")
    return tables


def _swept(field: str, given: Any, kind: Kind = _ANY) -> Any:
    """Return a value, or a list of them to be swept, as JSON values; a value may itself be a list inside of a list."""
    if not _is_list(given):
        return _take(field, kind, given)
    values = [_take(field, kind, value) for value in given]
    if not values:
        raise StudyError(f"{field} is an empty list; give at least one value, or leave it out")
    if value := twice(map(json.dumps, values)):
        raise StudyError(f"{field} has {value} twice, so its rows would count twice; remove one")
    return values


def _workload(given: Mapping[str, Any]) -> Table:
    """Return a ``[workload]`` as checked."""
    if "kind" not in given:
        raise StudyError("[workload] has no 'kind'; give a random family, a network or a file")
    return _check_table("workload", given, {"kind": _NAME})


def _cluster(given: Mapping[str, Any]) -> Table:
    """Return a ``[cluster]`` as checked: a preset, or a file."""
    _require_known(given, _CLUSTER, " of [cluster]")
    if ("gpu" in given) == ("file" in given):
        raise StudyError("[cluster] needs either 'gpu', a preset, or 'file', a cluster or calibration")
    preset = next((key for key in ("gpus", "link", "gpus_per_node") if key in given and "file" in given), None)
    if preset is not None:
        raise StudyError(f"{preset!r} of [cluster] is part of a preset, but 'file' is given; remove one")
    table = _check_table("cluster", given, _CLUSTER)
    if "file" in table:
        return table
    return {**table, "gpus": table.get("gpus", 1)}


def _simulation(given: Any) -> Table:
    """Return the ``[simulation]`` as checked, defaults written out."""
    _require_table("simulation", given, _SIMULATION)
    full = {**SIMULATION_DEFAULTS, **given}
    table = _check_table("simulation", {key: full[key] for key in _SIMULATION if key in full}, _SIMULATION)
    if "samples" in table and "jitter" not in table:
        raise StudyError("[simulation] has 'samples' but no 'jitter', so all would be alike; give one")
    if "samples" in table and "reference" in _values(table["engine"]):
        raise StudyError("samples are drawn by the compiled engine; leave out 'engine' or 'samples'")
    return table


def _execution(given: Any) -> Table:
    """Return the ``[execution]`` as checked."""
    _require_table("execution", given, _LIMITS)
    return {k: _take(f"{k!r} of [execution]", _LIMITS[k], v) for k, v in given.items() if v is not None}


def _check_table(name: str, given: Mapping[str, Any], known: Mapping[str, Kind], inside: str = "") -> Table:
    """Return a table whose fields may be swept, each value of its kind; fields of tables inside are not swept."""
    table: Table = {}
    for key, value in given.items():
        field = f"'{inside}{_take(f'a field of [{name}]', _NAME, key)}' of [{name}]"
        if key in _NESTED and known is _CLUSTER:
            if not isinstance(value, Mapping):
                raise StudyError(f"{field} must be a table such as {{launch = 0.0}}, not {value!r}")
            table[key] = _check_table(name, value, {}, f"{key}.")
        else:
            table[key] = _swept(field, value, known.get(key, _ANY))
    return table


def _figures(given: Any) -> tuple[Table, ...]:
    if isinstance(given, list | tuple) and not given:
        return ()
    try:
        return tuple(json.loads(json.dumps(dict(table), allow_nan=False)) for table in _tables("figure", given))
    except (TypeError, ValueError) as error:
        raise StudyError(f"[figure] must hold texts, numbers and lists: {error}") from None


def _entry(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of ``schedulers`` as a table."""
    if isinstance(given, str):
        return {"scheduler": given}
    return given


def _scheduler(given: Any) -> str | Table:
    """Return an entry of ``schedulers`` as checked: a name, or a table with options."""
    table = _entry(given)
    if not isinstance(table, Mapping):
        raise StudyError(f'a scheduler is a name, or a table such as {{scheduler = "ios"}}, not {given!r}')
    name = _take("the 'scheduler' of a table in 'schedulers'", _NAME, table.get("scheduler"))
    if ":" not in name and name not in SCHEDULERS:
        raise UnknownNameError("scheduler", name, [*SCHEDULERS, "package.module:function"])
    entry: Table = {"scheduler": name}
    if table.get("label") is not None:
        entry["label"] = _take(f"the 'label' of scheduler {name!r}", _NAME, table["label"])
    own = ":" in name
    if own:
        parameters = []
    else:
        parameters = [key for key in inspect.signature(SCHEDULERS[name]).parameters if key not in _GIVEN]
    for option, value in table.items():
        if option in ("scheduler", "label"):
            continue
        _take(f"an option of scheduler {name!r}", _NAME, option)
        if not own and option not in parameters:
            raise StudyError(
                f"scheduler {name!r} has no option {option!r}; known are: {', '.join(parameters) or 'none'}"
            )
        entry[option] = _swept(f"{option!r} of scheduler {name!r}", value)
    return name if len(entry) == 1 else entry


def _choices(entry: Mapping[str, Any]) -> Iterator[Choice]:
    """Yield the choices of a scheduler with options; of swept options the last varies fastest."""
    options = {option: value for option, value in entry.items() if option not in ("scheduler", "label")}
    # a label needs only the swept options in addition
    labelled = [option for option, value in options.items() if "label" not in entry or len(_values(value)) > 1]
    for point in points(options):
        options_of = {option: None if value == "none" else value for option, value in point.items()}  # TOML has no None
        words = [f"{option}={text_of(options_of[option])}" for option in labelled]
        label = " ".join([entry.get("label", entry["scheduler"]), *words])
        yield Choice(label, entry["scheduler"], tuple(options_of.items()))


def _values(given: Any) -> Sequence[Any]:
    """Return the values of a field: the list's values, or the single one."""
    if isinstance(given, list):
        return given
    return [given]


def _flat(table: Mapping[str, Any]) -> Table:
    """Return the values of each field; fields of tables inside get names such as ``device.launch``."""
    flat: Table = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": v for name, v in value.items()}
        else:
            flat |= {key: value}
    return {key: _values(value) for key, value in flat.items()}


def points(*tables: Mapping[str, Any]) -> Iterator[Point]:
    """Yield the points of tables, one after the other: lists are swept, the last field varies fastest."""
    for flat in map(_flat, tables):
        for point in product(*flat.values()):
            yield dict(zip(flat, point, strict=True))


def text_of(value: Any) -> str:
    """Return a value as labels and columns show it."""
    if isinstance(value, list | tuple):
        return ",".join(text_of(item) for item in value) or "()"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


# The rows ---------------------------------------------------------------------------------------


_NAMES: Final = ("key", "unit", "index", "status", "reason", "seed", "scheduler", "code")


@dataclass(frozen=True, slots=True)
class RowSpec:
    """Inputs of a row.

    Parameters
    ----------
    index
        Its number in the study.
    unit
        Name of its workload and instance: rows of one unit have one graph.
    workload, cluster, simulation
        Values of their fields.
    root, instance
        Root seed of the study, and number of the instance.
    choice
        The scheduler.
    known
        Key of the row where there is one already, else None.
    same
        A row with that key under another name, such as another label; None if there is none.
    """

    index: int
    unit: str
    workload: Point
    root: int
    instance: int
    cluster: Point
    simulation: Point
    choice: Choice
    known: str | None = None
    same: Mapping[str, Any] | None = None

    def columns(self) -> dict[str, Any]:
        """Return the columns that identify the row."""
        return {
            **_columns("workload.", self.workload),
            "seed": self.instance,
            **setting_columns(self.cluster, self.simulation, self.choice),
        }


def setting_columns(cluster: Point, simulation: Point, choice: Choice) -> dict[str, Any]:
    """Return the columns of the cluster, the simulation and the scheduler."""
    return {
        **_columns("cluster.", cluster),
        **_columns("simulation.", simulation),
        "scheduler": choice.label,
        **_columns("option.", dict(choice.options)),
    }


def _columns(prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{key}": text_of(value) if isinstance(value, tuple) else value for key, value in table.items()}


def is_name(column: str) -> bool:
    """Return whether a column identifies a row, as opposed to a result."""
    return column in _NAMES or column.startswith(("workload.", "cluster.", "simulation.", "option."))


def units(study: Study) -> list[tuple[str, Point, int]]:
    """Return every workload with each of its instances: name of the unit, point, number of the instance."""
    pairs = list(product(points(*study.workload), study.instances))
    texts = [json.dumps(["simsched.unit", point, study.seed, instance]) for point, instance in pairs]
    return [(sha256(text.encode()).hexdigest()[:16], *pair) for text, pair in zip(texts, pairs, strict=True)]


def rows_of(
    study: Study, known: Mapping[int, str] | None = None, shard: tuple[int, int] | None = None
) -> list[RowSpec]:
    """Return the rows of a study in their order: workload, instance, cluster, simulation, scheduler.

    Parameters
    ----------
    known
        Keys of the rows that there are already, by index.
    shard
        ``(i, n)``: part i of n alone, i from 1. Units are dealt out by turns, or rows where there are fewer units.
    """
    keys = known or {}
    (part, parts) = shard or (1, 1)
    inner = list(product(points(*study.cluster), points(study.simulation), study.choices))
    specs = []
    everything = units(study)
    by_row = len(everything) < parts
    for number, (unit, point, instance) in enumerate(everything):
        for index, (cluster, simulation, choice) in enumerate(inner, number * len(inner)):
            if (index if by_row else number) % parts == part - 1:
                row = RowSpec(index, unit, point, study.seed, instance, cluster, simulation, choice, keys.get(index))
                specs.append(row)
    return specs


def swept_columns(study: Study) -> list[str]:
    """Return the columns that a study varies: of the workload, the cluster and the simulation, in that order."""
    swept = []
    for name, tables in (("workload", study.workload), ("cluster", study.cluster), ("simulation", [study.simulation])):
        several = list(points(*tables))
        keys = dict.fromkeys(key for point in several for key in point)
        swept += [f"{name}.{key}" for key in keys if len({point.get(key, ...) for point in several}) > 1]
    return swept


def seed_of(root: int, instance: int, purpose: int) -> int:
    """Return the seed of an instance for the graph, for the scheduler, or for jitter: 53 bits.

    The seed is child `purpose` of child `instance` of ``SeedSequence(root)``, as `spawn` makes them: the same however
    many instances there are, and at every point of the grid.
    """
    child = np.random.SeedSequence(root, spawn_key=(instance, purpose))
    return int(child.generate_state(1, np.uint64)[0]) >> 11
