"""Readers of what the library itself has written: clusters, measurements, studies, and the results of questions."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cache, partial
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import simsched as ss
from simsched.base.io import dump_json
from simsched.experiments.accuracy.accuracy import Accuracy
from simsched.experiments.study import Results, Study
from simsched.experiments.whatif import Answer, BreakEven, Explanation, Robustness, Sensitivity, Sweep, Throughput
from validation import fuzz_documents
from workloads import check_kind, load_kind

_STUDY: Final = b"""name = "small"  # of every table one
schedulers = ["sequential", {scheduler = "ios", label = "two", r = [1, 2]}]
seeds = 2
seed = 7
[[workload]]
kind = "layered"
n_ops = [6, 8]
n_layers = 3
time = "1:2"
[[workload]]
kind = ["in-tree"]
n_ops = 5
[cluster]
gpu = ["a40", "a100"]
gpus = 2
link = "pcie4"
overheads = [true, false]
device.launch = 3.5
links.latency = [1.0, 2]
[simulation]
jitter = 0.1
samples = 2
threads = "one"
[execution]
time_limit = 20
[[figure]]
kind = "line"
x = "n_ops"
y = "makespan"
"""
_SMALL: Final = {
    "name": "small",
    "schedulers": ["sequential", "lios"],
    "seeds": 2,
    "workload": {"kind": "layered", "n_ops": [6, 8], "n_layers": 3},
    "cluster": {"gpu": "a40"},
}


def _documented() -> Any:
    """Return the documents of the tests, in which each field stands at least once."""
    folder = str(Path(__file__).resolve().parent.parent / "tests")
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module("documents")


def _json(*subjects: Any) -> tuple[bytes, ...]:
    return tuple(dump_json(one.to_dict()).encode() for one in subjects)


@cache
def clusters() -> tuple[bytes, ...]:
    """Return clusters: of two devices, of one, of several nodes."""
    return _json(_documented().CLUSTER, ss.Cluster.preset("h100"), ss.Cluster.preset("a100", 9))


@cache
def replays() -> tuple[bytes, ...]:
    """Return measured runs."""
    return _json(_documented().replay())


@cache
def profiles() -> tuple[bytes, ...]:
    """Return a profile with runs, and what it is of."""
    return _json(_documented().profile())


@cache
def calibrations() -> tuple[bytes, ...]:
    """Return calibrations."""
    return _json(_documented().calibration())


def studies() -> tuple[bytes, ...]:
    """Return studies in TOML."""
    return (_STUDY, b'name = "a"\nschedulers = ["lios"]\n[workload]\nkind = "squeezenet"\n[cluster]\nfile = "a.json"\n')


@cache
def _folder() -> dict[str, bytes]:
    """Return the files of a study that was run, by name."""
    with TemporaryDirectory() as folder:
        asked = Study.from_dict(_SMALL)
        ss.run_study(asked, folder, load=load_kind, check=check_kind, executor="serial")
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.suffix != ".lock"}


def rows() -> tuple[bytes, ...]:
    """Return the rows of a study."""
    return (_folder()["rows.jsonl"],)


def study_files() -> tuple[bytes, ...]:
    """Return what a folder of rows says of its study."""
    return (_folder()["study.json"],)


@contextmanager
def _beside(path: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Put the other files of a folder beside one of them, for as long as the folder is read."""
    others = {Path(path).with_name(name): content for name, content in files.items() if name != Path(path).name}
    for other, content in others.items():
        other.write_bytes(content)
    try:
        yield str(Path(path).parent)
    finally:
        for other in others:
            other.unlink()


def read_folder(path: str) -> Results:
    """Read a study's folder of which one file is given."""
    with _beside(path, _folder()) as folder:
        return Results.open(folder)


def accuracies() -> tuple[bytes, ...]:
    """Return what a validation came to."""
    return (dump_json(_documented().accuracy_file()).encode(),)


def read_accuracy(path: str) -> Accuracy:
    """Read a validation's folder, of whose files that of the accuracy is given."""
    with _beside(path, {"round-2.json": replays()[0]}) as folder:
        return Accuracy.load(folder)


class Page(NamedTuple):
    """A report."""

    html: str


def report_of(source: str) -> Page:
    """Write a report of a file or folder, as the command does."""
    from simsched.cli.options import Compare, Target
    from simsched.cli.report import report

    with TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        path = Path(folder) / "report.html"
        report([source], str(path), Target(gpus=2), Compare())
        return Page(path.read_text(encoding="utf-8"))


def report_of_study(path: str) -> Page:
    """Write the report of a study's folder of which one file is given."""
    with _beside(path, _folder()) as folder:
        return report_of(folder)


def report_of_validation(path: str) -> Page:
    """Write the report of a validation's folder, of whose files that of the accuracy is given."""
    with _beside(path, {"round-2.json": replays()[0]}) as folder:
        return report_of(folder)


def reportable() -> tuple[bytes, ...]:
    """Return documents of which reports are made."""
    plain = (*comparisons(), *fuzz_documents.schedules(), *fuzz_documents.programs(), *replays())
    return *plain, *(one for made in questions().values() for one in made)


def recorded(path: str) -> Any:
    """Make a backend of the folder of a file."""
    from hwbackend.recorded_backend import RecordedBackend

    return RecordedBackend(folder=str(Path(path).parent)).cluster


@cache
def comparisons() -> tuple[bytes, ...]:
    """Return comparisons: plain, with samples, with a scheduler that refused."""
    graph, cluster = fuzz_documents.example_graph(), ss.Cluster.preset("a100", 2)
    return _json(
        ss.compare(graph, cluster, ["lios", "sequential"]),
        ss.compare(graph, cluster, ["sequential", "autograph"], samples=3, jitter=0.1, rng=0),
    )


@cache
def questions() -> dict[str, tuple[bytes, ...]]:
    """Return results of questions, by the name of their class."""
    cluster, plan = ss.Cluster.preset("a100", 2), fuzz_documents.example_schedules()[2]
    asked = ss.what_if(plan, cluster).link(bandwidth=2.0).overhead(launch=0)
    other = ss.schedule(plan.graph, cluster, "sequential")
    found = (
        asked.answer(),
        asked.sweep("link.bandwidth", [1.0, 2.0]),
        asked.sweep("link.bandwidth", [1.0, 2.0], "gpus", [1, 2]),
        ss.sensitivity(plan, cluster, parameters=["link.bandwidth", "overhead.launch"]),
        ss.breakeven("overhead.launch", plan, other, cluster),
        ss.explain(plan, cluster),
        ss.robust({"a": plan, "b": other}, cluster, jitter=0.1, samples=4, rng=0),
        ss.throughput(plan, cluster, 2),
    )
    documents: dict[str, tuple[bytes, ...]] = {}
    for one in found:
        documents[type(one).__name__] = (*documents.get(type(one).__name__, ()), *_json(one))
    return documents


ANSWERS: Final = (Answer, Sweep, Sensitivity, BreakEven, Explanation, Robustness, Throughput)
"""What questions come to, and can be written and read."""


def of_question(kind: type) -> Callable[[], tuple[bytes, ...]]:
    """Return what makes the documents of a kind of answer; other processes can be sent it."""
    return partial(_answers_of, kind.__name__)


def _answers_of(name: str) -> tuple[bytes, ...]:
    return questions()[name]
