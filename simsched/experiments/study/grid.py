"""The rows of a study: every workload, instance, cluster, simulation and scheduler with each, in a fixed order."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np

from simsched.experiments.study.choices import Choice, text_of
from simsched.experiments.study.fields import values
from simsched.experiments.study.study import Study

GRAPH, SCHEDULER, JITTER = range(3)
"""What the random numbers of an instance are for."""

Point = Mapping[str, Any]
"""A value for each field of a table; those of tables inside have names such as ``device.launch``."""


@dataclass(frozen=True, slots=True)
class RowSpec:
    """What a row is made from.

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

    def columns(self) -> dict[str, Any]:
        """Return the columns that say what the row is of."""
        found: dict[str, Any] = {f"workload.{key}": _cell(value) for key, value in self.workload.items()}
        found["seed"] = self.instance
        found |= {f"cluster.{key}": _cell(value) for key, value in self.cluster.items()}
        found |= {f"simulation.{key}": _cell(value) for key, value in self.simulation.items()}
        found["scheduler"] = self.choice.label
        return found | {f"option.{key}": _cell(value) for key, value in self.choice.options}


def _cell(value: Any) -> Any:
    return text_of(value) if isinstance(value, tuple) else value


def points(table: Mapping[str, Any]) -> Iterator[Point]:
    """Yield the points of a table: lists are swept, the last field varies fastest."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, Mapping) else {key: value}
    for point in product(*(values(flat, key) for key in flat)):
        yield {key: _frozen(value) for key, value in zip(flat, point, strict=True)}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def all_points(tables: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Return the points of several tables, one after the other."""
    return [point for table in tables for point in points(table)]


def units(study: Study) -> list[tuple[str, Point, int]]:
    """Return every workload with each of its instances: name of the unit, point, number of the instance."""
    found = []
    for point in all_points(study.workload):
        for instance in study.instances:
            content = json.dumps(["simsched.unit", dict(point), study.seed, instance])
            found.append((sha256(content.encode()).hexdigest()[:16], point, instance))
    return found


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
    clusters, simulations = all_points(study.cluster), list(points(study.simulation))
    inner = list(product(clusters, simulations, study.choices))
    found, everything = [], units(study)
    by_row = shard is not None and len(everything) < shard[1]
    for number, (unit, point, instance) in enumerate(everything):
        if shard is not None and not by_row and number % shard[1] != shard[0] - 1:
            continue
        for place, (cluster, simulation, choice) in enumerate(inner):
            index = number * len(inner) + place
            if shard is None or not by_row or index % shard[1] == shard[0] - 1:
                row = RowSpec(index, unit, point, study.seed, instance, cluster, simulation, choice, keys.get(index))
                found.append(row)
    return found


def swept_columns(study: Study) -> list[str]:
    """Return the columns that a study varies: of the workload, the cluster and the simulation, in that order."""
    found = []
    for name, tables in (("workload", study.workload), ("cluster", study.cluster), ("simulation", [study.simulation])):
        seen: dict[str, list[Any]] = {}
        several = all_points(tables)
        for point in several:
            for key, value in point.items():
                seen.setdefault(key, []).append(value)
        found += [f"{name}.{key}" for key, given in seen.items() if len(given) < len(several) or len(set(given)) > 1]
    return found


def seed_of(root: int, instance: int, purpose: int) -> int:
    """Return the seed of an instance for the graph, for the scheduler, or for jitter: 53 bits.

    It is that of child `purpose` of child `instance` of ``SeedSequence(root)``, as `spawn` makes them:
    the same however many instances there are, and at every point of the grid.
    """
    child = np.random.SeedSequence(root, spawn_key=(instance, purpose))
    return int(child.generate_state(1, np.uint64)[0]) >> 11
