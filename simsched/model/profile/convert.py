"""`Profile` to and from JSON documents."""

from dataclasses import asdict, fields
from typing import Any

from simsched.base.errors import FormatError
from simsched.base.io import Record, document
from simsched.model.cluster import Cluster
from simsched.model.graph import Kernel, OpGraph
from simsched.model.profile.device import LIMITS, MeasuredDevice
from simsched.model.profile.measured import MeasuredCopy, MeasuredKernel, MeasuredOperator
from simsched.model.profile.profile import Profile, Provenance
from simsched.model.profile.replay import Replay, read_run, run_to_dict
from simsched.model.program import Program

FORMAT, VERSION = "simsched.profile", 1
_WORK = ("share", "efficiency")  # of a kernel: not measured


def to_dict(profile: Profile) -> dict[str, Any]:
    """See `Profile.to_dict`."""
    found: dict[str, Any] = {"format": FORMAT, "version": VERSION, "provenance": _known(profile.provenance)}
    if profile.device is not None:
        found["device"] = _known(profile.device)
    found["operators"] = [_operator_to_dict(op) for op in profile.operators]
    if profile.graph is not None:
        found["graph"] = profile.graph.to_dict()
    if profile.cluster is not None:
        found["cluster"] = profile.cluster.to_dict()
    if profile.runs:
        found |= _runs_to_dict(profile.runs)
    return found


def _runs_to_dict(runs: tuple[Replay, ...]) -> dict[str, Any]:
    """Return runs whose graphs and clusters, which most of them share, are written once each."""
    graphs, clusters = ({id(part): part for part in parts} for parts in (
        [run.program.graph for run in runs], [run.cluster for run in runs]))  # fmt: skip
    number = {key: i for parts in (graphs, clusters) for i, key in enumerate(parts)}
    rows = []
    for run in runs:
        program = run.program.to_dict()
        del program["graph"]
        rows.append({"graph": number[id(run.program.graph)], "cluster": number[id(run.cluster)], **run_to_dict(run),
                     "program": program})  # fmt: skip
    return {
        "graphs": [graph.to_dict() for graph in graphs.values()],
        "clusters": [cluster.to_dict() for cluster in clusters.values()],
        "runs": rows,
    }


def _known(row: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(row).items() if value is not None}


def _operator_to_dict(op: MeasuredOperator) -> dict[str, Any]:
    row: dict[str, Any] = {"name": op.name, "samples": list(op.samples)}
    if op.kernels:
        row["kernels"] = [_kernel_to_dict(kernel) for kernel in op.kernels]
    if op.copies:
        row["copies"] = [_known(copy) | {"samples": list(copy.samples)} for copy in op.copies]
    return row


def _kernel_to_dict(kernel: MeasuredKernel) -> dict[str, Any]:
    row = _known(kernel) | {"samples": list(kernel.samples)}
    if kernel.launch is not None:
        row["launch"] = {key: value for key, value in asdict(kernel.launch).items() if key not in _WORK}
    return row


def from_dict(data: Any, source: str) -> Profile:
    """See `Profile.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    device, provenance = top.take("device", dict, None), top.take("provenance", dict, {})
    graph, cluster = (top.take(key, dict, None) for key in ("graph", "cluster"))
    return top.build(
        Profile,
        operators=tuple(_read_operator(row) for row in top.records("operators")),
        device=None if device is None else _read_device(Record(device, f"{source}: device")),
        provenance=_read_provenance(Record(provenance, f"{source}: provenance")),
        graph=None if graph is None else OpGraph.from_dict(graph, f"{source}: graph"),
        cluster=None if cluster is None else Cluster.from_dict(cluster, f"{source}: cluster"),
        runs=_read_runs(top, source),
    )


def _read_runs(top: Record, source: str) -> tuple[Replay, ...]:
    graphs = top.take("graphs", list, [])
    clusters = [Cluster.from_dict(c, f"{source}: clusters[{i}]") for i, c in enumerate(top.take("clusters", list, []))]
    read: dict[int, OpGraph] = {}
    found = []
    for row in top.records("runs", []):
        numbers = [row.take(key, int) for key in ("graph", "cluster")]
        for number, parts, what in zip(numbers, (graphs, clusters), ("graph", "cluster"), strict=True):
            if not 0 <= number < len(parts):
                raise FormatError(f"{row.where}: there is no {what} {number}; the file has {len(parts)}")
        program = Program.from_dict(row.take("program", dict) | {"graph": graphs[numbers[0]]}, f"{row.where}: program")
        graph = read.setdefault(numbers[0], program.graph)  # runs of one graph share it
        found.append(read_run(row, program.over(graph), clusters[numbers[1]]))
    return tuple(found)


def _read_operator(row: Record) -> MeasuredOperator:
    return row.build(
        MeasuredOperator,
        name=row.take("name", str),
        samples=_samples(row),
        kernels=tuple(_read_kernel(kernel) for kernel in row.records("kernels", [])),
        copies=tuple(_read_copy(copy) for copy in row.records("copies", [])),
    )


def _samples(row: Record) -> tuple[float, ...]:
    values = row.take("samples", list)
    for value in values:
        if type(value) not in (int, float):
            raise FormatError(f"{row.where}: field 'samples' must be a list of numbers; one is {value!r}")
    try:
        return tuple(map(float, values))
    except OverflowError:
        raise FormatError(f"{row.where}: field 'samples' holds too large a number") from None


def _read_kernel(row: Record) -> MeasuredKernel:
    launch = row.take("launch", dict, None)
    return row.build(
        MeasuredKernel,
        name=row.take("name", str),
        samples=_samples(row),
        launch=None if launch is None else _read_launch(Record(launch, f"{row.where}.launch")),
        stream=row.take("stream", int, 0),
    )


def _read_launch(row: Record) -> Kernel:
    return row.build(Kernel, **{f.name: row.take(f.name, int) for f in fields(Kernel) if f.name not in _WORK})


def _read_copy(row: Record) -> MeasuredCopy:
    return row.build(
        MeasuredCopy,
        kind=row.take("kind", str),
        name=row.take("name", str),
        samples=_samples(row),
        nbytes=row.take("nbytes", float, None),
        stream=row.take("stream", int, 0),
    )


def _read_device(row: Record) -> MeasuredDevice:
    return row.build(
        MeasuredDevice,
        name=row.take("name", str),
        compute_capability=row.take("compute_capability", str, None),
        memory=row.take("memory", float, None),
        **{name: row.take(name, int, None) for name in LIMITS},
    )


def _read_provenance(row: Record) -> Provenance:
    texts = ("source", "profiler", "cuda_runtime", "cuda_driver", "date")
    return row.build(
        Provenance,
        **{name: row.take(name, str, None) for name in texts},
        iterations=row.take("iterations", int, 1),
        discarded=row.take("discarded", int, 0),
    )
