"""Studies that grow: rows keep their identity under new numbers, and several studies merge into one."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from simsched.base.errors import StudyError
from simsched.experiments.study.study import (
    Choice,
    Point,
    Study,
    points,
    refusing,
    setting_columns,
    units,
)

Table = Mapping[str, Any]


class Places:
    """Finds the numbers that rows have in a study, by their columns.

    Parameters
    ----------
    study
        That numbers the rows.

    Notes
    -----
    A study that has grown numbers its rows again. A row's unit identifies its workload, root seed and instance; the
    other columns identify cluster, simulation, scheduler and options. If a study names a point twice, its rows get both
    places.
    """

    def __init__(self, study: Study) -> None:
        self._units: dict[str, list[int]] = {}
        for number, (unit, *_) in enumerate(units(study)):
            self._units.setdefault(unit, []).append(number)
        settings = list(product(points(*study.cluster), points(study.simulation), study.choices))
        self._settings: dict[str, list[int]] = {}
        for number, setting in enumerate(settings):
            self._settings.setdefault(_setting(setting_columns(*setting)), []).append(number)
        self._n_settings = len(settings)
        self._schedulers = {choice.label: choice.scheduler for choice in study.choices}

    def of(self, row: Mapping[str, Any]) -> tuple[list[int], str]:
        """Return the numbers of a row, none if the study does not name it, and the scheduler that its label means."""
        inner = self._settings.get(_setting(row), [])
        numbers = [unit * self._n_settings + setting for unit in self._units.get(row["unit"], []) for setting in inner]
        return numbers, self._schedulers.get(row["scheduler"], "")


def _setting(row: Mapping[str, Any]) -> str:
    """Return the columns of cluster, simulation and scheduler as one text, in whatever order they are."""
    named = [(k, v) for k, v in row.items() if k == "scheduler" or k.startswith(("cluster.", "simulation.", "option."))]
    return json.dumps(sorted(named, key=lambda each: each[0]))


def workload_of(row: Mapping[str, Any]) -> str:
    """Return the columns of workload and instance as one text, in whatever order they are."""
    named = [(k, v) for k, v in row.items() if k == "seed" or k.startswith("workload.")]
    return json.dumps(sorted(named, key=lambda each: each[0]))


def join_studies(studies: Sequence[Study]) -> Study:
    """Return the study that has the schedulers, seeds, workloads, clusters and simulations of all of some studies.

    Returns
    -------
    Study
        The first, if the others add nothing. New parts come after known ones. Rows that none of the studies has - a
        new scheduler of the one on a new workload of the other - are rows of it, too.

    Raises
    ------
    StudyError
        If names, root seeds or fields of the simulation differ, or a label means different schedulers.
    """
    whole = studies[0]
    for study in studies[1:]:
        with refusing(f"{study.source}: cannot be joined with {studies[0].source}"):
            whole = _join(whole, study)
    return whole


def _join(one: Study, other: Study) -> Study:
    for field in ("name", "seed"):
        if getattr(one, field) != getattr(other, field):
            raise StudyError(f"{field!r} is {getattr(other, field)!r}, not {getattr(one, field)!r}; use another folder")
    if {*one.simulation} != {*other.simulation}:
        raise StudyError("[simulation] has other fields; write all of them in both, or use another folder")
    simulation = {
        key: _with_new(_as_list(value), _as_list(other.simulation[key])) for key, value in one.simulation.items()
    }
    parts: dict[str, Any] = {
        "schedulers": _choices(one, other),
        "workload": _tables(one.workload, other.workload),
        "cluster": _tables(one.cluster, other.cluster),
        "seeds": _seeds(one, other),
        "simulation": {key: values if len(values) > 1 else values[0] for key, values in simulation.items()},
        "figure": one.figure or other.figure,
    }
    return Study(one.name, seed=one.seed, execution=one.execution, source=one.source, folder=one.folder, **parts)


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _with_new(known: Sequence[Any], given: Iterable[Any], text: Callable[[Any], str] = json.dumps) -> list[Any]:
    """Return the first values, then the second ones that are not among them."""
    texts = {text(value) for value in known}
    return [*known, *(value for value in given if text(value) not in texts)]


def _seeds(one: Study, other: Study) -> int | list[int]:
    if isinstance(one.seeds, int) and isinstance(other.seeds, int):
        return max(one.seeds, other.seeds)
    return _with_new(one.instances, other.instances)


def _text(point: Point) -> str:
    return json.dumps(point, sort_keys=True)


def _tables(known: Sequence[Table], given: Sequence[Table]) -> list[Table]:
    """Return tables with all points of both; whole ones where one side has all points of the other."""
    old, new = ({_text(point) for point in points(*tables)} for tables in (known, given))
    if new <= old or old <= new:
        return list(known if new <= old else given)
    tables = list(known)
    for table in given:
        added = [point for point in points(table) if _text(point) not in old]
        if len(added) == len(list(points(table))):
            tables += [table]
        else:
            tables += [_nest(point) for point in added]
    return tables


def _nest(point: Point) -> Table:
    """Return a point as a table without sweeps."""
    table: dict[str, Any] = {}
    for name, value in point.items():
        outer, dot, inner = name.partition(".")
        if isinstance(value, list | tuple):
            single = [value]
        else:
            single = value
        if dot and outer in ("device", "links"):
            table.setdefault(outer, {})[inner] = single
        else:
            table[name] = single
    return table


def _choices(one: Study, other: Study) -> list[Any]:
    """Return the schedulers of both."""
    ours = one.choices
    theirs = other.choices
    if all(choice in ours for choice in theirs):
        return list(one.schedulers)
    if all(choice in theirs for choice in ours):
        return list(other.schedulers)
    return [*one.schedulers, *(_entry(choice) for choice in theirs if choice not in ours)]


def _entry(choice: Choice) -> dict[str, Any]:
    """Return a choice as an entry of ``schedulers``."""
    options = {
        name: "none" if value is None else [value] if isinstance(value, list | tuple) else value
        for name, value in choice.options
    }
    return {"scheduler": choice.scheduler, "label": choice.label, **options}
