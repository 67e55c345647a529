"""Evaluation of a row in a worker: make the graph, schedule it, simulate the schedule."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from simsched.base.errors import SimschedError
from simsched.base.jit import running_time
from simsched.calibration import read_target
from simsched.experiments.evaluation import Yardstick, evaluate
from simsched.experiments.rows import row_of
from simsched.experiments.study.execution import TimeLimitReached, call_within
from simsched.experiments.study.store import STATUSES
from simsched.experiments.study.study import GRAPH, JITTER, SCHEDULER, Point, RowSpec, is_name, seed_of
from simsched.model import Cluster, OpGraph, Schedule, Target, bind, operator_times
from simsched.model.costmodel import bare, with_cluster
from simsched.model.graph.columns import COSTS, KERNELS, LABELS
from simsched.schedulers import takes

Row = dict[str, Any]
Items = tuple[tuple[str, Any], ...]
Loader = Callable[..., OpGraph]
Measured = tuple[OpGraph, str, dict[str, tuple[Yardstick, float]]]
"""A graph, its digest, and by digest of each target what rows are measured by, and the sum of all times."""
OK, REFUSED, FAILED, TIMEOUT = STATUSES

_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]+")
_RESULTS: Final = (
    "makespan_us",
    "estimate_us",
    "speedup",
    "over_bound",
    "streams",
    "devices",
    "syncs",
    "peak_memory_bytes",
    "sm_utilization",
    "sm_efficiency",
)  # columns of a row of a comparison
FORMAT: Final = "simsched.row 2"
"""Changed whenever equal keys would no longer mean equal rows."""
_COLUMNS: Final = (*COSTS, "intensity", "src", "dst", "edge_nbytes", "edge_transfer", "kernel_ptr", *KERNELS)
_draws = cache(partial(takes, option="rng"))


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Makes rows from their specifications; can be sent to other processes.

    Parameters
    ----------
    load
        Makes the graph of a kind and its parameters, `seed` among them.
    folder
        Folder that the study's file names are relative to.
    version
        Version of this library.
    time_limit
        Seconds that a row may take, graph and all; None: as long as it takes.
    run
        Identifies the run: values that a process keeps from another run, whose files may have had other contents, are
        not used.
    codes
        Digest of the code of each scheduler that is not part of this library, see `code_of`.
    """

    load: Loader
    folder: str
    version: str
    time_limit: float | None
    run: str
    codes: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __call__(self, spec: RowSpec) -> list[Row]:
        """Return the row, or none where there is one of the same content already."""
        if spec.known is not None and spec.known == self._key(spec, None, None):
            return []
        start = running_time()
        row: Row = {}
        end: tuple[str, str | None] = OK, None
        try:
            if not call_within(self.time_limit, self._fill, spec, row):
                if spec.same is None:
                    return []
                return [self._with_name(spec, spec.same)]
        except TimeLimitReached:
            end = TIMEOUT, f"took longer than the time limit of {self.time_limit:g} s"
        except SimschedError as error:
            end = REFUSED, _text_of(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, a panic of a library, ...
            end = FAILED, _one_line(error)
        row["wall.row_s"] = running_time() - start
        return [self._complete(spec, row, *end)]

    def rows_of_lost_unit(self, spec: RowSpec, timed_out: bool) -> list[Row]:
        """Return the row of a unit that ended its process."""
        died = FAILED, "the process that ran it died, of too little memory or of a crash"
        ended = TIMEOUT, "did not heed the time limit; its process was ended"
        return [self._complete(spec, {}, *(ended if timed_out else died))]

    def _complete(self, spec: RowSpec, row: Row, status: str, reason: str | None) -> Row:
        """Return a row with all that is known of it before, in the order of its columns."""
        key = row.pop("key", None) or self._key(spec, None, None)
        head = {"key": key, "unit": spec.unit, "index": spec.index, "status": status, "reason": reason}
        code = self.codes.get(spec.choice.scheduler)
        return head | spec.columns() | ({} if code is None else {"code": code}) | row

    def _with_name(self, spec: RowSpec, row: Mapping[str, Any]) -> Row:
        """Return a row of the same content under the name that the study has for it now."""
        results = {name: value for name, value in row.items() if name == "key" or not is_name(name)}
        return self._complete(spec, results, row["status"], row["reason"])

    def _key(self, spec: RowSpec, graph: str | None, cluster: str | None) -> str:
        return row_key(spec, self.version, graph, cluster, self.codes.get(spec.choice.scheduler))

    def _fill(self, spec: RowSpec, row: Row) -> bool:
        """Fill a row as far as it goes; return whether it is a new one."""
        target, target_name = _target(self, tuple(spec.cluster.items()))
        graph, graph_name, measured = _graph(self, spec.unit, tuple(spec.workload.items()), spec.root, spec.instance)
        row["key"] = self._key(spec, graph_name, target_name)
        if row["key"] == spec.known:
            return False
        row |= {"graph": graph_name, "ops": len(graph), "edges": len(graph.src)}
        if target_name not in measured:
            timed, cluster = bind(graph, target)
            serial_us = float(operator_times(timed, cluster.devices[0]).sum())
            measured[target_name] = Yardstick(timed, target), serial_us
        row |= _results(spec, *measured[target_name])
        return True


@lru_cache(32)
def _target(make: Evaluate, point: Items) -> tuple[Target, str]:
    """Return the target of rows, and its digest."""
    target = make_target(dict(point), make.folder)
    return target, target_digest(target)


@lru_cache(2)  # rows of one unit that come in several batches share a graph
def _graph(make: Evaluate, unit: str, workload: Items, root: int, instance: int) -> Measured:  # noqa: ARG001
    """Return a unit's graph (its name distinguishes 1 from 1.0), its digest, and its values on targets."""
    parameters = dict(workload)
    kind = file_or_kind(parameters.pop("kind"), make.folder)
    graph = make.load(kind, **{"seed": seed_of(root, instance, GRAPH), **parameters})
    return graph, graph_digest(graph), {}


def file_or_kind(kind: str, folder: str) -> str:
    """Return the kind of a workload, or if it has a name as only files have one, the path from the study's folder."""
    if Path(kind).suffix or Path(kind).name != kind:
        return str(Path(folder, kind))
    return kind


def make_target(point: Point, folder: str) -> Target:
    """Return the cluster of a point, or the calibration that its file holds; a relative file is one of `folder`.

    Raises
    ------
    FileError, FormatError
        If the file cannot be read.
    UnknownNameError, ClusterError
        If a preset or a field of a device or link is unknown, or a field holds a wrong value.
    """
    if "file" in point:
        target = read_target(Path(folder, point["file"]))
    else:
        more = {key: point[key] for key in ("link", "gpus_per_node") if key in point}
        target = Cluster.preset(point["gpu"], point["gpus"], **more)
    cluster = bare(target)
    if point.get("overheads", True):
        changed = cluster
    else:
        changed = cluster.without_overheads()
    for prefix, change in (("device.", Cluster.replace_devices), ("links.", Cluster.replace_links)):
        fields = {key.removeprefix(prefix): value for key, value in point.items() if key.startswith(prefix)}
        if fields:
            changed = change(changed, **fields)
    if changed is cluster:
        return target
    return with_cluster(target, changed)


def _results(spec: RowSpec, yardstick: Yardstick, serial_us: float) -> Row:
    """Return the columns of results and of wall times."""
    scheduler = spec.choice.scheduler
    options = dict(spec.choice.options)
    if "rng" not in options and _draws(scheduler):
        options["rng"] = seed_of(spec.root, spec.instance, SCHEDULER)
    settings = spec.simulation
    how: dict[str, Any] = {
        "engine": settings["engine"],
        "lowering": {name: settings[name] for name in ("threads", "transfers", "events") if name in settings},
    }
    varied: dict[str, Any] = {"jitter": settings.get("jitter"), "seed": seed_of(spec.root, spec.instance, JITTER)}
    evaluation = evaluate(
        yardstick.graph,
        yardstick.cluster,
        scheduler=scheduler,
        options=options,
        samples=settings.get("samples"),
        bound=yardstick.bound if settings["bound"] else None,
        **how,
        **varied,
    )
    plan = cast(Schedule, evaluation.plan)
    drawn = evaluation.samples
    # with samples the makespan has no jitter
    results = row_of("", evaluation, yardstick.captured_makespan(how | varied if drawn is None else how))
    row: Row = {name: getattr(results, name) for name in _RESULTS}
    row["bound_us"] = evaluation.bound_us
    if plan.estimate:
        row["estimate_speedup"] = serial_us / plan.estimate
    else:
        row["estimate_speedup"] = None
    # over all devices
    if plan.execution == "stages":
        row["stages"] = len(np.unique(plan.device * np.int64(2**31) + plan.stage))
    else:
        row["stages"] = None
    if drawn is not None:
        row |= {f"{name}_us": getattr(drawn, name) for name in ("p50", "p95", "p99", "mean", "std")}
    row |= {f"search.{name}": value for name, value in plan.search.items() if type(value) is int}
    row |= {"wall.search_s": evaluation.search_s, "wall.simulate_s": evaluation.simulate_s}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}
    return {name: None if type(value) is float and not isfinite(value) else value for name, value in plain.items()}


def _one_line(error: BaseException) -> str:
    """Return a message on one line, without parts that differ from run to run."""
    kind = type(error).__name__
    text = _text_of(error)
    line = f"{kind}: {text}" if text else kind
    return str(SimschedError(_ADDRESS.sub("0x...", " ".join(line.split()))))


def _text_of(error: BaseException) -> str:
    """Return the text of an error; an empty text if the error cannot be printed."""
    try:
        return str(error)
    except Exception:  # the class is not ours
        return ""


def graph_digest(graph: OpGraph) -> str:
    """Return the sha256 of all that a graph holds but its name, in hex.

    Equal graphs have equal digests however they were made. O(V + E).
    """
    digest = sha256(json.dumps(list(graph.names)).encode())
    for name in _COLUMNS:
        column = np.asarray(getattr(graph, name))
        wide = column.astype("<f8" if column.dtype.kind == "f" else "<i8")  # also one of equal rows, stored as one
        digest.update(f"{name}:{len(wide)}:".encode())
        digest.update(wide.tobytes())
    # Without collectives the label is left out, so that digests stay.
    labels = LABELS if graph.meetings else [label for label in LABELS if label != "collective"]
    for label in labels:
        codes, texts = graph.labels(label)
        used, first, back = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)  # the texts that occur, by their first appearance
        digest.update(json.dumps([label, *(texts[code] for code in used[order].tolist())], default=repr).encode())
        digest.update(np.argsort(order)[back].tobytes())
    details = [(i, dict(attributes), *shapes) for i, (attributes, *shapes) in sorted(graph._details.items())]
    digest.update(json.dumps(details, sort_keys=True).encode())
    return digest.hexdigest()


def target_digest(target: Target) -> str:
    """Return the sha256 of a cluster, or of a calibration, in hex."""
    document: dict[str, Any] = target.to_dict()  # type: ignore[union-attr]  # a calibration has it, too
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def row_key(spec: RowSpec, version: str, graph: str | None, cluster: str | None, code: str | None = None) -> str:
    """Return the address of a row: the sha256 of all that has influence on it, in hex.

    Parameters
    ----------
    version
        Version of this library.
    graph, cluster
        Their digests. If a digest is missing (no graph could be made, or the process died), the study's own description
        replaces it.
    code
        Digest of the scheduler's code, None of a scheduler of this library.
    """
    where = dict(spec.workload) if graph is None else graph, dict(spec.cluster) if cluster is None else cluster
    how = dict(sorted(spec.simulation.items())), spec.choice.scheduler, sorted(spec.choice.options)
    content = FORMAT, version, [spec.root, spec.instance], *where, *how, *([] if code is None else [code])
    return sha256(json.dumps(content).encode()).hexdigest()
