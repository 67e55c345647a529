"""Tables of pairs of kernels out of torch.profiler traces, in the form that `validation.realtraces` reads.

A pair for dispatch is a kernel that fills its device in four waves or more, and one that became ready on another stream
while that alone ran. A pair for slow-down is a kernel that ran alone, and with the same name and shape beside another
one for nearly all of its time.
"""

import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, pstdev
from typing import Any, Final

import numpy as np

from simsched.base.errors import ClusterError, FileError, SimschedError
from simsched.base.io import write_file
from simsched.model import Device, Kernel, Operator, occupancy
from workloads.formats.kineto.device import preset_of
from workloads.formats.kineto.program import read_kineto_program
from workloads.formats.kineto.traced import TracedProgram

DISPATCH = "dispatch.csv"
SLOWDOWNS = "slowdowns.json"
COLUMNS: Final = (
    "trace",
    "kernel1",
    "grid1",
    "block1",
    "reg1",
    "smem1",
    "dur1",
    "kernel2",
    "grid2",
    "block2",
    "reg2",
    "smem2",
    "dur2",
    "ready2",
    "start2",
)
ENDINGS: Final = (".json", ".json.gz", ".json.zst", ".zip", ".tar", ".tar.gz", ".tgz")
"""Ends of the names of files that may hold traces."""
_WAVES: Final = 4
_BESIDE: Final = 0.95
"""Part of the time of a kernel beside another one from which on it counts as beside it."""


@dataclass(frozen=True)
class TracePairs:
    """The pairs of a trace; or why there are none."""

    source: str
    dispatch: tuple[dict[str, Any], ...] = ()
    slowdowns: tuple[dict[str, Any], ...] = ()
    error: str | None = None


def read_all_pairs(sources: Sequence[str | os.PathLike[str]]) -> list[TracePairs]:
    """Return the pairs of traces, and of each file in a folder, by name. An unreadable file gives a row with the error.

    Raises
    ------
    FileError
        If there is nothing to read.
    """
    paths = [path for source in map(Path, sources) for path in (_files(source) if source.is_dir() else [source])]
    if not paths:
        raise FileError(f"{', '.join(map(str, sources))}: nothing to read: no file ends in {', '.join(ENDINGS)}")
    pairs = []
    for path in paths:
        try:
            pairs.append(pairs_of(read_kineto_program(path, step="all"), str(path)))
        except SimschedError as error:
            pairs.append(TracePairs(str(path), error=str(error)))
    return pairs


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name.lower().endswith(ENDINGS)]


def pairs_of(program: TracedProgram, source: str) -> TracePairs:
    """Return the pairs of a traced program, times in us."""
    dispatch: list[dict[str, Any]] = []
    slowdowns: list[dict[str, Any]] = []
    operators = program.graph.operators[: program.of_trace.n_own]
    for number, device in enumerate(program.cluster.devices):
        rows = [i for i, op in enumerate(operators) if op.attributes["device"] == number]
        rows.sort(key=lambda i: program.times[i, 0])
        activity = _Activity(program, device, [operators[i] for i in rows], rows)
        name = f"{Path(source).name.split('.')[0]}_{preset_of(device)}"
        dispatch += [{"trace": name} | row for row in activity.dispatch()]
        slowdowns += [{"trace": name} | row for row in activity.slowdowns()]
    return TracePairs(source, tuple(dispatch), tuple(slowdowns))


class _Activity:
    """The activities of a device, by start."""

    def __init__(self, program: TracedProgram, device: Device, operators: list[Operator], rows: list[int]) -> None:
        self._device = device
        self._operators = operators
        self._names = [program.of_trace.kernels[row] for row in rows]
        self._start, self._end = np.maximum(0.0, program.times[rows]).T
        self._ready = program.of_trace.ready[rows]
        self._before = np.maximum.accumulate(np.concatenate([[-np.inf], self._end[:-1]]))  # latest end before each

    def _beside(self, first: float, last: float, at: int) -> list[int]:
        """Return the other activities in an interval, without the activity `at`."""
        others = []
        k = int(np.searchsorted(self._start, last)) - 1
        while k >= 0 and (self._before[k] > first or self._end[k] > first):
            if k != at and self._end[k] > first:
                others.append(k)
            k -= 1
        return others

    def dispatch(self) -> Iterable[dict[str, Any]]:
        """Yield pairs whose second kernel became ready while the first ran alone, and started before its end."""
        for k, op in enumerate(self._operators):
            if op.kind != "kernel" or not op.kernels:
                continue
            ready = float(self._ready[k])
            running = self._beside(ready, float(self._start[k]), k)
            if len(running) != 1:
                continue
            first = running[0]
            other = self._operators[first]
            is_apart = other.attributes["stream"] != op.attributes["stream"]
            fits = is_apart and other.kind == "kernel" and other.kernels and self._start[first] <= ready
            if not fits or _waves(self._device, other.kernels[0]) < _WAVES:
                continue
            begin = float(self._start[first])
            if min(float(self._end[k] - self._start[k]), float(self._start[k]) - begin) > 0:
                times = {"ready2": round(ready - begin, 3), "start2": round(float(self._start[k]) - begin, 3)}
                yield self._columns(1, first) | self._columns(2, k) | times

    def _columns(self, number: int, k: int) -> dict[str, Any]:
        kernel = self._operators[k].kernels[0]
        return {
            f"kernel{number}": self._names[k],
            f"grid{number}": kernel.blocks,
            f"block{number}": kernel.threads,
            f"reg{number}": kernel.registers,
            f"smem{number}": kernel.shared_memory,
            f"dur{number}": round(float(self._end[k] - self._start[k]), 3),
        }

    def slowdowns(self) -> Iterable[dict[str, Any]]:
        """Yield kernels that ran alone and, with the same name and shape, beside another one."""
        alone: dict[Any, list[float]] = defaultdict(list)
        beside: dict[Any, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
        for k, op in enumerate(self._operators):
            time = float(self._end[k] - self._start[k])
            if op.kind != "kernel" or not op.kernels or time <= 0:
                continue
            key = self._names[k], op.kernels[0]
            running = self._beside(float(self._start[k]), float(self._end[k]), k)
            if not running:
                alone[key].append(time)
            elif len(running) == 1:
                other = running[0]
                common = min(self._end[k], self._end[other]) - max(self._start[k], self._start[other])
                if common >= _BESIDE * time:
                    by = self._operators[other]
                    beside[key][self._names[other], by.kind, by.kernels].append(time)
        for key, groups in beside.items():
            for (other_name, kind, kernels), times in groups.items() if key in alone else ():
                yield _slowdown(key, alone[key], other_name, kind, kernels, times)


def _slowdown(
    key: tuple[str, Kernel], solo: list[float], other: str, kind: str, kernels: tuple[Kernel, ...], times: list[float]
) -> dict[str, Any]:
    name, kernel = key
    row = {
        "kernel": name,
        "grid": [kernel.blocks],
        "block": [kernel.threads],
        "registers": kernel.registers,
        "shared_memory": kernel.shared_memory,
        "solo_us": median(solo),
        "solo_n": len(solo),
        "solo_cv": pstdev(solo) / mean(solo),
        "corun_us": median(times),
        "corun_n": len(times),
        "corunner": other,
        "corunner_type": {"collective": "comm", "kernel": "comp"}.get(kind, "mem"),
        "corunner_grid": None,
    }
    if kernels:
        by = kernels[0]
        row |= {
            "corunner_grid": [by.blocks],
            "corunner_block": [by.threads],
            "corunner_registers": by.registers,
            "corunner_shared": by.shared_memory,
        }
    return row


def _waves(device: Device, kernel: Kernel) -> float:
    try:
        held = occupancy(device, kernel).blocks * device.sms
    except ClusterError:
        return 0.0
    return kernel.blocks / held if held else 0.0


def write_pairs(pairs: Sequence[TracePairs], folder: str | os.PathLike[str]) -> list[str]:
    """Write the tables of traces into a folder; return the files: one without rows is not written."""
    written = []
    Path(folder).mkdir(parents=True, exist_ok=True)
    dispatch = [row for one in pairs for row in one.dispatch]
    if dispatch:
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(dispatch)
        written.append(str(Path(folder, DISPATCH)))
        write_file(written[-1], text.getvalue())
    slowdowns = [row for one in pairs for row in one.slowdowns]
    if slowdowns:
        written.append(str(Path(folder, SLOWDOWNS)))
        write_file(written[-1], json.dumps(slowdowns, indent=1) + "\n")
    return written
