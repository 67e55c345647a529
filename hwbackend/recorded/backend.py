"""Answers from files of earlier measurements, as if the device that made them were at hand."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from hwbackend.measuring.synth import SYNTH, realised
from simsched.base.errors import BackendError
from simsched.base.io import read_json
from simsched.model import Cluster, Operator, OpGraph, Program, Schedule
from simsched.model.backend import prepare
from simsched.model.profile import Profile, Replay

_PROFILE: Final = "simsched.profile"
_REPLAY: Final = "simsched.replay"
_SHOWN: Final = 8
_logger = logging.getLogger(__name__)
_Path = str | os.PathLike[str]


class RecordedBackend:
    """A backend of recorded measurements: profiles and replays from files.

    Parameters
    ----------
    paths
        Files that hold a profile or a replay, or one such file.
    folder
        Besides, all ``.json`` files in it and below that do; others are left alone.

    Raises
    ------
    BackendError
        If there is no measurement, or they were made on different devices.
    FileError, FormatError
        If a file cannot be read or is not whole.

    Notes
    -----
    The runs of a profile can be replayed, too. Of several measurements of the same the latest by its date counts, of
    equal dates the last in the order of the paths.
    """

    name = "recorded"

    def __init__(self, paths: _Path | Sequence[_Path] = (), *, folder: _Path | None = None) -> None:
        if isinstance(paths, str | os.PathLike):
            given = [paths]
        else:
            given = list(paths)
        if not given and folder is None:
            raise BackendError("the backend 'recorded' needs files of measurements; give folder= or paths=")
        self._where = ", ".join(map(str, [*given, *([] if folder is None else [folder])]))
        self._profiles: list[Profile] = []
        self._cluster: Cluster | None = None
        self._measured_on: tuple[str, str] | None = None  # the device, and the file that said so
        self._runs: dict[bytes, Replay] = {}
        runs: list[Replay] = []
        for path, data in _documents(given, folder):
            runs += self._read(path, data)
        if self._cluster is None:
            raise BackendError(f"there is no profile with runs and no replay in {self._where}")
        runs.sort(key=lambda run: run.environment.get("date", ""))
        self._profiles.sort(key=lambda profile: profile.provenance.date or "")
        self._runs |= {_digest(run.program): run for run in runs}

    def _read(self, path: str, data: Any) -> list[Replay]:
        """Return the runs in a file; keep its profile."""
        if data["format"] == _REPLAY:
            found = [Replay.from_dict(data, path)]
        else:
            profile = Profile.from_dict(data, path)
            found = list(profile.runs)
            self._profiles.append(profile)
            if profile.cluster is not None:
                self._require_one(profile.cluster, profile.device.name if profile.device else "", path)
        for run in found:
            self._require_one(run.cluster, run.environment.get("device", ""), path)
        return found

    def _require_one(self, cluster: Cluster, device: str, path: str) -> None:
        """Refuse measurements of another device than those before."""
        device = device or cluster.devices[0].model
        if self._cluster is None or self._measured_on is None:
            self._cluster = cluster
            self._measured_on = (device, path)
        elif device != self._measured_on[0] or cluster != self._cluster:
            of = f"{len(cluster)} x {device}", f"{len(self._cluster)} x {self._measured_on[0]}"
            raise BackendError(
                f"{path} was measured on {of[0]}, {self._measured_on[1]} on {of[1]}"
                f"{', described otherwise' if of[0] == of[1] else ''}: give the measurements of one of them"
            )

    def __repr__(self) -> str:
        return f"RecordedBackend({self._where!r}, {len(self._profiles)} profiles, {len(self._runs)} runs)"

    @property
    def cluster(self) -> Cluster:
        """The devices on which it was measured, as they were described then."""
        assert self._cluster is not None  # else it was not made
        return self._cluster

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph as it was run when it was measured.

        A graph that was not is realised as a synthetic one.
        """
        for known in self._graphs():
            if known is graph or _is_realised(graph, known):
                return known
        return realised(graph, self.cluster)

    def _graphs(self) -> Iterator[OpGraph]:
        seen: dict[int, None] = {}
        for graph in [p.graph for p in reversed(self._profiles)] + [run.program.graph for run in self._runs.values()]:
            if graph is not None and id(graph) not in seen:
                seen[id(graph)] = None
                yield graph

    def microbenchmarks(self) -> Profile:
        """Return the recorded microbenchmarks.

        Raises
        ------
        BackendError
            If there are none.
        """
        found = [profile for profile in self._profiles if profile.graph is None and profile.runs]
        if not found:
            raise BackendError(f"there are no microbenchmarks in {self._where}; {self._describe_profiles()}")
        return found[-1]

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:  # noqa: ARG002
        """Return the recorded profile of a graph, whatever schedules it was made with.

        Raises
        ------
        BackendError
            If there is none.
        """
        known = self.realise(graph)
        found = [p for p in self._profiles if p.graph is not None and (p.graph is known or p.graph == known)]
        if not found:
            raise BackendError(f"graph {graph.name!r} was not profiled in {self._where}; {self._describe_profiles()}")
        return found[-1]

    def _describe_profiles(self) -> str:
        names = [profile.graph.name for profile in self._profiles if profile.graph is not None]
        if names:
            return f"there are profiles of {_list_names(names)}"
        return "there is no profile of a graph"

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """Return the recorded run of the same program: the same operators, kernels and instructions.

        The first `repeats` of its latencies, or all if there are fewer; it was warmed up as it was.

        Raises
        ------
        BackendError
            If it was not recorded; the message lists the recorded ones.
        """
        program = prepare(self, schedule, repeats, warmup)
        run = self._runs.get(_digest(program))
        if run is not None:
            return replace(run, latency=run.latency[:repeats])
        graph = program.graph.name
        if isinstance(schedule, Schedule):
            what = schedule.scheduler
        else:
            what = "this program"
        names = [run.name for run in self._runs.values() if run.program.graph.name == graph]
        if names:
            raise BackendError(
                f"no run of {what!r} of graph {graph!r} with the same instructions is in {self._where}; "
                f"there are {_list_names(names)}"
            )
        graphs = list(dict.fromkeys(run.program.graph.name for run in self._runs.values()))
        raise BackendError(f"no run of graph {graph!r} is in {self._where}; there are runs of {_list_names(graphs)}")


def availability() -> tuple[bool, str]:
    """Return that it can be used, and its requirements."""
    return True, "give folder=, where profiles and replays of a device were written"


def _documents(paths: Sequence[_Path], folder: _Path | None) -> Iterator[tuple[str, Any]]:
    """Yield the documents of measurements with their paths, those of the folder in the order of theirs."""
    for path in paths:
        data = read_json(path)
        if not _is_measurement(data):
            raise BackendError(f"{path} is no profile and no replay")
        yield str(path), data
    if folder is None:
        return
    if not Path(folder).is_dir():
        raise BackendError(f"there is no folder {folder}")
    for file in sorted(Path(folder).rglob("*.json")):
        data = read_json(file)
        if _is_measurement(data):
            yield str(file), data
        else:
            _logger.info("%s is no profile and no replay: left alone", file)


def _is_measurement(data: Any) -> bool:
    return isinstance(data, dict) and data.get("format") in (_PROFILE, _REPLAY)


def _is_realised(graph: OpGraph, known: OpGraph) -> bool:
    """Return whether a measured graph became `known`."""
    return (
        graph.names == known.names
        and np.array_equal(graph.src, known.src)
        and np.array_equal(graph.dst, known.dst)
        and all(map(_became, graph.operators, known.operators))
    )


def _became(op: Operator, known: Operator) -> bool:
    if op == known:
        return True
    if known.kind == SYNTH:
        return not op.kernels and op.utilization == known.utilization and op.time in (None, known.time)
    does = [(o.kind, o.dtype, o.attributes, o.input_shapes, o.output_shape) for o in (op, known)]
    return does[0] == does[1]


def _digest(program: Program) -> bytes:
    """Return a key that programs with equal launches and instructions share: names, kernels, instructions, copies."""
    graph = program.graph
    copies = program.copies
    text = sha256(repr((graph.names, program.devices, program.execution, program.n_events)).encode())
    text.update(repr([(op.kind, op.flops, op.nbytes, op.kernels) for op in graph.operators]).encode())
    for column in (
        graph.src,
        graph.dst,
        program.thread_ptr,
        program.action,
        program.device,
        program.stream,
        program.argument,
        program.priority,
        copies.op,
        copies.device,
        copies.nbytes,
    ):
        text.update(np.ascontiguousarray(column, np.float64).tobytes() + b"|")
    return text.digest()


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    if len(names) > _SHOWN:
        return f"{shown} and {len(names) - _SHOWN} more"
    return shown
