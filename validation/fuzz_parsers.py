"""The parsers that the fuzz campaign reads spoiled documents with, and what must hold of what they accept."""

import gzip
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import simsched as ss
import workloads
from simsched.base.errors import SimschedError
from simsched.base.io import dump_json, parse_json
from simsched.calibration import Calibration, read_target
from simsched.experiments.accuracy.accuracy import Accuracy
from simsched.experiments.comparison import Comparison
from simsched.experiments.study import Results, Study
from simsched.model.profile import Profile
from simsched.model.program import Program
from validation import fuzz_documents as documents
from validation import fuzz_readers as readers
from workloads.formats import FORMATS, format_of, read, read_graph, write
from workloads.models.randwire import read_wirings

_LONGEST: Final = 500
_MOST_DIGITS: Final = 11
_KINDS: Final = (
    ss.OpGraph, ss.Schedule, Program, Profile, ss.Cluster, ss.Replay, Calibration, Comparison, Study, *readers.ANSWERS,
)  # fmt: skip
_EQUAL: Final = (ss.OpGraph, ss.Schedule, Profile, ss.Cluster)  # of which two that are alike are equal


class DefectError(Exception):
    """What should not have come out of a parser, and is no exception by itself."""


class Parser(NamedTuple):
    """A parser, or several ways to call it, and what to spoil for it."""

    documents: Callable[[], tuple[bytes, ...]]
    structure: str
    """What the documents are made of: "json", "onnx" or "text"."""
    file: str
    """What the file is called that is read."""
    calls: tuple[Callable[[str], Any], ...]
    """Each is called with the path."""
    wraps: tuple[Callable[[bytes], bytes], ...] = (bytes,)
    """What is done to a spoiled document before it is written."""
    names_file: bool = True
    """Whether an error must name the file."""
    written_as: str | None = None
    """Format in which what was read is written and read again."""


def _of(format: str, *options: Mapping[str, Any]) -> tuple[Callable[[str], Any], ...]:
    """Return ways to read a file of a format: without options, and with each of these."""
    return tuple(partial(read, format=format, **one) for one in ({}, *options))


_NUMBER: Final = re.compile(rb"(image_size=|n_ops=)?([0-9]+)")


def _bounded(spec: bytes) -> bytes:
    """Leave of numbers two digits, or over eleven: what lies between makes graphs that are large, and no mistake."""

    def short(found: re.Match[bytes]) -> bytes:
        digits, name = found[2].lstrip(b"0"), found[1] or b""
        return name + (digits if len(digits) > _MOST_DIGITS else digits[: 3 if name else 2] or b"0")

    return _NUMBER.sub(short, spec)


def _from_spec(path: str) -> Any:
    """Make the graph of the spec that is in a file; ``{}`` stands for a folder with files of every format."""
    spec = Path(path).read_bytes().decode("utf-8", "replace")
    folder = Path(path).parent / "files"
    if not folder.exists():
        folder.mkdir()
        for name, make in _FILES.items():
            (folder / name).write_bytes(make()[0])
    return workloads.from_spec(spec.replace("{}", str(folder)))


def _any_format() -> tuple[bytes, ...]:
    return tuple(one for make in _MIXED for one in make()[:2])


_MIXED: Final = (
    documents.graphs, documents.schedules, documents.profiles, documents.ios,
    documents.hios, documents.kinetos, documents.wirings,
)  # fmt: skip
_FILES: Final = {
    "net.dot": documents.dots, "net.stg": documents.stgs, "net.txt": documents.hios_graphs,
    "net.json": documents.graphs, "ios.json": documents.ios, "net.onnx": documents.onnxes,
    "wiring.json": documents.wirings,
}  # fmt: skip
_IOS: Final[dict[str, Any]] = {"batch": 3, "dtype": "fp16", "device": "a100"}
_NAMES: Final = ["conv1", "relu", "flatten", "fc"]

PARSERS: Final[Mapping[str, Parser]] = {
    "dot": Parser(documents.dots, "text", "net.dot", _of("dot"), written_as="dot"),
    "stg": Parser(documents.stgs, "text", "net.stg", _of("stg", {"keep_dummies": False, "time_unit": 0.5})),
    "hios-graph": Parser(documents.hios_graphs, "text", "net.txt", _of("hios-graph", {"floor": 2.0})),
    "ios": Parser(documents.ios, "json", "net.json", _of("ios", {"on": "x", **_IOS})),
    "ios-graph": Parser(
        documents.ios, "json", "net.json",
        (partial(read_graph, format="ios"), partial(read_graph, format="ios", **_IOS)),
    ),
    "hios": Parser(documents.hios, "json", "net.json", _of("hios", _IOS)),
    "kineto": Parser(
        documents.kinetos, "json", "net.json",
        (*_of("kineto", {"level": "leaf", "duration": "span"}, {"graph": _NAMES}, {"captured": ["a", "b"], "skip": 0}),
         partial(read_graph, format="kineto"), partial(read_graph, format="kineto", step="all", order="waits")),
        (bytes, bytes, bytes, partial(gzip.compress, mtime=0)),
    ),
    "onnx": Parser(
        documents.onnxes, "onnx", "net.onnx",
        _of("onnx", {"granularity": "operator"}, {"dtype": "fp16", "device": "a100"}, {"shapes": {"x": (2, 6, 32)}}),
    ),
    "graph": Parser(documents.graphs, "json", "net.json", _of("simsched"), written_as="simsched"),
    "schedule": Parser(documents.schedules, "json", "net.json", _of("simsched"), written_as="simsched"),
    "program": Parser(documents.programs, "json", "net.json", _of("simsched"), written_as="simsched"),
    "profile": Parser(documents.profiles, "json", "net.json", _of("simsched"), written_as="simsched"),
    "cluster": Parser(readers.clusters, "json", "net.json", (ss.Cluster.load, read_target)),
    "calibration": Parser(readers.calibrations, "json", "net.json", (Calibration.load, read_target)),
    "replay": Parser(readers.replays, "json", "net.json", (ss.Replay.load,)),
    "runs": Parser(readers.profiles, "json", "net.json", (Profile.load,)),
    "recorded": Parser(readers.replays, "json", "net.json", (readers.recorded,), names_file=False),
    "study": Parser(readers.studies, "text", "study.toml", (Study.from_file,)),
    "study-folder": Parser(readers.study_files, "json", "study.json", (readers.read_folder,), names_file=False),
    "rows": Parser(readers.rows, "text", "rows.jsonl", (readers.read_folder,), names_file=False),
    "accuracy": Parser(readers.accuracies, "json", "accuracy.json", (readers.read_accuracy,), names_file=False),
    "comparison": Parser(readers.comparisons, "json", "net.json", (Comparison.load,)),
    **{
        kind.__name__.lower(): Parser(readers.of_question(kind), "json", "net.json", (kind.load,))
        for kind in readers.ANSWERS
    },
    "report": Parser(readers.reportable, "json", "net.json", (readers.report_of,)),
    "report-study": Parser(readers.rows, "text", "rows.jsonl", (readers.report_of_study,), names_file=False),
    "report-validation": Parser(
        readers.accuracies, "json", "accuracy.json", (readers.report_of_validation,), names_file=False
    ),
    "wirings": Parser(documents.wirings, "json", "net.json", (read_wirings,)),
    "spec": Parser(documents.specs, "text", "spec", (_from_spec,), (_bounded,), names_file=False),
    "detection": Parser(
        _any_format, "json", "net.json", (read, format_of, read_graph), (bytes, bytes, partial(gzip.compress, mtime=0)),
    ),
}  # fmt: skip
"""Every parser of the project, by the name under which the log has it."""


def examine(parser: Parser, how: int, path: Path) -> bool:
    """Read a file; return whether it was accepted, and raise if anything but an answer or a proper refusal came out.

    Parameters
    ----------
    parser, how
        What to read with, and which of its calls.
    path
        The file.

    Raises
    ------
    DefectError
        If the refusal is not as errors should be, or what was read does not hold up.
    Exception
        Whatever else the parser raised.
    """
    try:
        found = parser.calls[how](str(path))
    except SimschedError as error:
        _check_error(error, str(path) if parser.names_file else "")
        return False
    _check_found(found)
    if parser.written_as is not None:
        _check_written(found, parser.written_as)
    return True


def _check_error(error: SimschedError, path: str) -> None:
    text = str(error)
    name = type(error).__name__
    if not text.strip():
        raise DefectError(f"{name} without a text") from error
    if len(text.splitlines()) > 1:
        raise DefectError(f"{name} of several lines") from error
    if len(text) > _LONGEST:
        raise DefectError(f"{name} of over {_LONGEST} characters") from error
    if path not in text:
        raise DefectError(f"{name} does not name the file") from error
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DefectError(f"{name} that cannot be printed") from error


def _check_found(found: Any) -> None:
    """Prove that what was read can be used."""
    if isinstance(found, ss.OpGraph):
        if sorted(found.order) != sorted(found.names):
            raise DefectError("the topological order is not one of the operators")
    elif isinstance(found, ss.Schedule):
        try:
            found.check()
        except SimschedError as error:
            _check_error(error, "")
    elif isinstance(found, Program):
        found.check()
    elif isinstance(found, list):
        if any(not 0 <= src < dst < wiring.n_ops for wiring in found for src, dst in wiring.edges):
            raise DefectError("a wiring leads nowhere")
    elif isinstance(found, str):
        if found not in FORMATS:
            raise DefectError("a format that there is not")
    elif isinstance(found, Results):
        found.to_csv()
        found.status()
        found.table()
    elif isinstance(found, Accuracy):
        found.table()
        dump_json(found.to_dict())
    elif isinstance(found, readers.Page):
        if not found.html.startswith("<!DOCTYPE html>") or not found.html.endswith("</html>\n"):
            raise DefectError("a report that is not whole")
    elif not isinstance(found, _KINDS):
        raise DefectError(f"a {type(found).__name__} was read")
    if isinstance(found, _KINDS):
        again = type(found).from_dict(parse_json(dump_json(found.to_dict())))
        if isinstance(found, _EQUAL) and not getattr(found, "runs", ()) and again != found:  # traces are never equal
            raise DefectError("what was read is not equal after a round trip through our own format")
        if again.to_dict() != found.to_dict():
            raise DefectError("what was read is not written alike after a round trip through our own format")


def _check_written(found: Any, format: str) -> None:
    """Prove that what was read can be written in its own format and read again, or is refused."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "again.json"
        try:
            write(found, path, format)
        except SimschedError as error:
            _check_error(error, "")
            return
        try:
            again = (read_graph if isinstance(found, ss.OpGraph) else read)(path, format)
        except SimschedError as error:
            raise DefectError(f"what was written is refused: {type(error).__name__}") from error
        if not isinstance(found, Program) and again != found:
            raise DefectError(f"what was read is not equal after a round trip through {format}")
