"""The rows of a study: every workload, instance, cluster, simulation and scheduler with each, in a fixed order."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np

from simsched.experiments.study.study import Choice, Point, Study, points, text_of

GRAPH, SCHEDULER, JITTER = range(3)
"""What the random numbers of an instance are for."""


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
        parts: tuple[tuple[str, Mapping[str, Any]], ...] = (
            ("workload.", self.workload), ("", {"seed": self.instance}), ("cluster.", self.cluster),
            ("simulation.", self.simulation), ("", {"scheduler": self.choice.label}),
            ("option.", dict(self.choice.options)),
        )  # fmt: skip
        return {
            f"{part}{key}": text_of(value) if isinstance(value, tuple) else value
            for part, table in parts
            for key, value in table.items()
        }


def units(study: Study) -> list[tuple[str, Point, int]]:
    """Return every workload with each of its instances: name of the unit, point, number of the instance."""
    found = []
    for point in points(*study.workload):
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
    keys, (part, parts) = known or {}, shard or (1, 1)
    inner = list(product(points(*study.cluster), points(study.simulation), study.choices))
    found, everything = [], units(study)
    by_row = len(everything) < parts
    for number, (unit, point, instance) in enumerate(everything):
        for index, (cluster, simulation, choice) in enumerate(inner, number * len(inner)):
            if (index if by_row else number) % parts == part - 1:
                row = RowSpec(index, unit, point, study.seed, instance, cluster, simulation, choice, keys.get(index))
                found.append(row)
    return found


def swept_columns(study: Study) -> list[str]:
    """Return the columns that a study varies: of the workload, the cluster and the simulation, in that order."""
    found = []
    for name, tables in (("workload", study.workload), ("cluster", study.cluster), ("simulation", [study.simulation])):
        several = list(points(*tables))
        keys = dict.fromkeys(key for point in several for key in point)
        found += [f"{name}.{key}" for key in keys if len({point.get(key, ...) for point in several}) > 1]
    return found


def seed_of(root: int, instance: int, purpose: int) -> int:
    """Return the seed of an instance for the graph, for the scheduler, or for jitter: 53 bits.

    It is that of child `purpose` of child `instance` of ``SeedSequence(root)``, as `spawn` makes them:
    the same however many instances there are, and at every point of the grid.
    """
    child = np.random.SeedSequence(root, spawn_key=(instance, purpose))
    return int(child.generate_state(1, np.uint64)[0]) >> 11
