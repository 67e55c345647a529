"""Fuzzing of every reader and of the command line: any input gives an answer, or an error of one line.

    python -m validation.fuzz --seconds 3600 --seed 1 --log validation/fuzz.json

Documents are drawn from the schemas of our own formats, or are valid ones (`tests/documents.py`, ``validation/seeds``)
spoiled in their JSON nodes and their bytes. Command lines are made of every command and option that there is, and their
words are spoiled like nodes; one of the files that they read may be spoiled, too. Each reader has a process of its own,
with little memory and time; the command line gets a quarter of the seconds. `--only` names readers, with commas. What
is accepted must survive being written and read again. The status is 1 if anything failed; the log has the smallest
document that does it, in base64.
"""

import base64
import faulthandler
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib import import_module
from inspect import signature
from io import StringIO
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple, NoReturn
from zlib import crc32

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

import simsched as ss
from hwbackend.recorded.backend import RecordedBackend
from simsched.base.errors import SimschedError
from simsched.base.io import dump_json, parse_json
from simsched.calibration import read_target
from simsched.cli.run import application
from simsched.cli.run import run as run_command
from simsched.experiments.accuracy import Accuracy
from simsched.experiments.documents import DOCUMENTS, schema
from simsched.experiments.study import Results, Study
from simsched.model.program import Program
from simsched.schedulers import SCHEDULERS
from validation.evidence import FOLDER, keep, options
from validation.spoiling import Seeds, spoilt, spoilt_nodes, values
from workloads import WORKLOADS, check_kind, from_spec, load_kind
from workloads.formats import FORMATS, format_of, read, read_graph, write
from workloads.models.randwire import read_wirings

BATCH: Final = 250
"""Examples between two looks at the clock."""
_LONGEST: Final = 500  # characters of an error


class DefectError(Exception):
    """A wrong result of an input that is not an exception."""


# The command line ---------------------------------------------------------------------------------

_GRAPHS: Final = "simsched.graph.json dot-2.dot stg-1.stg onnx-5.onnx random:layered,n_ops=6,n_layers=3"
_PLANS: Final = "simsched.schedule.json simsched.program.json"
_WORDS: Final = {
    "graph": _GRAPHS,
    "plan": _PLANS,
    "trace": "kineto-1.json",
    "traces": "kineto-1.json",
    "profiles": "simsched.profile.json",
    "source": _GRAPHS,
    "sources": f"simsched.comparison.json simsched.whatif.json rows measured {_PLANS}",
    "file": "study-1.toml",
    "folder": "rows",
    "folders": "rows",
    "resume": "measured new",
    "target": "t.json t.dot",
    "gpu": "a100 v100",
    "link": "pcie3 nvlink3",
    "cluster": "simsched.cluster.json simsched.calibration.json",
    "first": "lios",
    "scheduler": " ".join(SCHEDULERS),
    "schedulers": "lios sequential,heft",
    "second": "sequential",
    "option": "streams=2 window=2",
    "shape": "x=1,3,8,8",
    "backend": "synthetic",
    "backend_option": "gpu=a100 gpus=2",
    "kind": "gpus formats backend",
    "by": "ops kind,gpus",
    "metric": "makespan speedup",
    "family": "layered fork-join cholesky,tiles=2",
    "form": "png svg",
    "schema": " ".join(DOCUMENTS),
    "name": "lios synthetic",
    "size": "small full",
    "seconds": "0.01 0.5",
    "dask": "none",
    "dtype": "fp16 bf16",
    "shard": "0/1 1/2",
    "step": "0 all",
    "host": "a b",
    "streams": "1",
    "title": "a",
    "execution": "own graph",
    "template": "h100",
    "baseline": "eager lios",
    "values": "1,2 1:4",
    "values2": "1,2",
    "over": "batch=1:2 seed=1 x=1:3",
    "parameter": "link.bandwidth gpus overhead.launch",
    "parameter2": "gpus",
    "changes": "link.bandwidth*=2 gpus=2 overhead.launch=5us execution=graph operators.speed*=2 fuse=a,b",
}
"""Right values by the name of an argument or option; numbers and written files have theirs below."""
_OF_TYPES: Final = {"IntRange": "1 2 0", "FloatRange": "0.1 2", "FloatParamType": "0.5 2"}
_WRITTEN: Final = "t.json t.svg new"
_CHEAP: Final = {
    "validate": "--schedulers=sequential --rounds=1 --training=1 --held-out=1 --repeats=2",
    "replay": "--repeats=2",
    "run": "--serial",
    "resume": "--serial",
    "duel": "--evaluations=2",
}  # values that would take seconds otherwise
_NO_ERROR: Final = re.compile(r"\s*$|warning: |.*: [0-9,]+ of [0-9,]+ rows")  # other output on stderr


@cache
def commands() -> list[tuple[tuple[str, ...], list[Any]]]:
    """Return every command of the application, with its arguments and options as click has them."""
    from typer.main import get_command

    def walk(one: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        inner = getattr(one, "commands", {})
        for name, each in inner.items():
            yield from walk(each, (*path, name))
        if not inner:
            yield path, one.params

    return list(walk(get_command(application()), ()))


def words_of(one: Any) -> st.SearchStrategy[list[str]]:
    """Return words that give an argument or an option a right value."""
    names = [name for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]
    if getattr(one, "is_flag", False):
        return st.sampled_from(names).map(lambda name: [name])
    known = (_WORDS.get(one.name) or _OF_TYPES.get(type(one.type).__name__, _WRITTEN)).split()
    return st.tuples(st.sampled_from(names or [""]), st.sampled_from(known)).map(lambda words: [*filter(None, words)])


@st.composite
def command_lines(draw: st.DrawFn, seeds: Seeds) -> bytes:
    """Return a command line, and a file that may be spoiled, as JSON."""
    path, parameters = draw(st.sampled_from(commands()))
    more = draw(st.lists(st.sampled_from(parameters), max_size=4))
    given_ = [*(one for one in parameters if one.required), *(one for one in more if not one.required)]
    words = [*path, *(word for one in given_ for word in draw(words_of(one))), *_CHEAP.get(path[-1], "").split()]
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        found = draw(spoilt_nodes(words, [name for name, _ in seeds]))
        words = [str(word).replace("\0", "") for word in (found if isinstance(found, list) else [found])]
    name, content = draw(st.sampled_from(seeds))
    if draw(st.booleans()):
        content = draw(spoilt([(name, content)]))
    return json.dumps({"words": words, "file": name, "content": base64.b64encode(content).decode()}).encode()


def command(file: str) -> None:
    """Run the command line that a file holds in a copy of the corpus.

    Raises
    ------
    SimschedError
        With its message, if its exit status is 2.
    DefectError
        If it did anything but answer or refuse in one line, or touched a file that its words do not name.
    """
    path = Path(file)
    out = StringIO()
    err = StringIO()
    example = json.loads(path.read_bytes())
    words = example["words"]
    with TemporaryDirectory() as root, redirect_stdout(out), redirect_stderr(err):
        here = Path(shutil.copytree(path.parent, f"{root}/here"))
        (here / example["file"]).write_bytes(base64.b64decode(example["content"]))
        before = _state(root)
        with chdir(here):
            status = run_command(words)
        touched = {name for name, _ in _state(root) ^ before}
    said = [line for line in err.getvalue().splitlines() if not _NO_ERROR.match(line)]
    if status not in (0, 2) or len(said) != status // 2:
        raise DefectError(f"status {status}: {' '.join(said)}")
    named = [
        os.path.normpath(here / text)
        for previous, word in pairwise(["", *words])
        if words[0] in ("convert", "study") or "-" in (previous[:1], word[:1])
        for text in (word, word.partition("=")[2], word[2:])
        if text
    ]
    for name in touched:
        if not any(name == one or name.startswith(f"{one}/") for one in named):
            raise DefectError(f"touched a file that is not named: {Path(name).suffix}")
        if Path(name).name.startswith(".") and not name.endswith(".lock"):
            raise DefectError("left a temporary file")
    if status:
        if touched and words[0] not in ("study", "validate"):
            raise DefectError("refused, and wrote a file")
        raise SimschedError(said[0])
    if "--json" in words and not {"-h", "--help", "--version"} & {*words}:
        json.loads(out.getvalue())


def _state(root: str) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for path in Path(root).rglob("*") if path.is_file()}


# Readers ------------------------------------------------------------------------------------------


class Reader(NamedTuple):
    """Function that reads documents."""

    calls: tuple[Callable[[str], Any], ...]
    """Ways to read a path."""
    seeds: str
    """Valid documents: a pattern of files of the corpus."""
    format: str = ""
    """Format in which the document is written and read again."""
    names_file: bool = True
    """Whether an error must name the file."""
    schema: str = ""
    """Name of a schema that documents are drawn from besides."""
    seconds: float = 20.0
    """For one example."""
    memory: int = 512 << 20
    """Bytes that it may take beyond its process's memory at first."""


def _in_folder(load: Callable[[str], Any], path: str) -> Any:
    return load(str(Path(path).parent))


def _recorded(folder: str) -> ss.Cluster:
    return RecordedBackend(folder=folder).cluster


def _graph_of_spec(path: str) -> ss.OpGraph:
    """Numbers have few digits or very many: those between make large graphs, and no mistake."""
    return from_spec(re.sub(r"\d{4,11}(?!\d)", lambda found: found[0][:3], Path(path).read_text(errors="replace")))


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "stg": {"keep_dummies": False, "time_unit": 0.5},
    "hios-graph": {"floor": 2.0},
    "rows": {"cluster": "a100"},
    "ios": {"batch": 3, "dtype": "fp16"},
    "hios": {"batch": 3, "dtype": "fp16"},
    "dot": {},
    "kineto": {"level": "leaf"},
    "onnx": {"granularity": "operator", "dtype": "fp16"},
}
READERS: Final[dict[str, Reader]] = {
    **{name: Reader((DOCUMENTS[name].load,), f"{name}.json", schema=name) for name in DOCUMENTS},
    **{
        name: Reader(
            (partial(read, format=name), partial(read_graph, format=name), partial(read, format=name, **options)),
            f"{name}-[0-9]*",
            name if FORMATS[name].write else "",
        )
        for name, options in _OPTIONS.items()
    },
    "native": Reader((partial(read, format="simsched"), read_graph), "simsched.[gsp]*[hem].json", "simsched"),
    "detection": Reader((read, format_of, read_graph), "*.json"),
    "target": Reader((read_target,), "simsched.c[al]*.json"),
    "wirings": Reader((read_wirings,), "wirings-*"),
    "study": Reader((Study.from_file,), "study-*"),
    "rows of a study": Reader((partial(_in_folder, Results.open),), "rows/rows.jsonl", names_file=False),
    "study of rows": Reader((partial(_in_folder, Results.open),), "rows/study.json", names_file=False),
    "rounds": Reader((partial(_in_folder, Accuracy.load),), "measured/accuracy.json", names_file=False),
    "recorded": Reader((partial(_in_folder, _recorded),), "measured/round-2.json", names_file=False),
    "spec": Reader((_graph_of_spec,), "specs/*", names_file=False),
    "command line": Reader((command,), "[a-z]*-*", "", False, "", 60.0, 3 << 30),
}
"""Every reader, by the name under which the log has it."""
_SIZES: Final = ("n_ops", "n_layers", "layers", "rows", "columns", "tiles", "points", "n_blocks")


def fill(folder: Path) -> None:
    """Write the corpus: valid documents of every format, and folders as commands make them."""
    sys.path.append(str(FOLDER.parent / "tests"))
    made = import_module("documents").DOCUMENTS
    shutil.copytree(FOLDER / "seeds", folder, dirs_exist_ok=True)
    for name, make in made.items():
        (folder / f"{name}.json").write_text(dump_json(make()))
    for name, source in {"accuracy": "accuracy", "round-2": "replay"}.items():
        (folder / "measured").mkdir(exist_ok=True)
        shutil.copy(folder / f"simsched.{source}.json", folder / f"measured/{name}.json")
    family: dict[str, Any] = {"kind": "layered", "n_ops": [6, 8], "n_layers": 3}
    small = Study("small", ("sequential", "lios"), (family,), ({"gpu": "a40"},), seeds=(0, 1))
    ss.run_study(small, folder / "rows", load=load_kind, check=check_kind, executor="serial")
    (folder / "specs").mkdir()
    for name, function in WORKLOADS.items():
        usual = {key: one.default for key, one in signature(function).parameters.items() if key != "rng"}
        texts = [
            f"{key}={min(value, 8) if key in _SIZES and value is not None else value}" for key, value in usual.items()
        ]
        spec = re.sub(r"\((\S+), (\S+)\)", r"\1:\2", ",".join([name, *texts]))
        (folder / "specs" / name.replace(":", "-")).write_text(spec.replace("None", "none"))


def examine(reader: Reader, how: int, path: Path) -> bool:
    """Read a file; return whether it was accepted.

    Raises
    ------
    DefectError
        If the refusal is not as errors should be, or the document does not hold up.
    Exception
        Whatever else the reader raised.
    """
    try:
        found = reader.calls[how](str(path))
    except SimschedError as error:
        _check_error(error, str(path) if reader.names_file else "")
        return False
    if isinstance(found, ss.OpGraph) and sorted(found.order) != sorted(found.names):
        raise DefectError("the topological order is not one of the operators")
    if isinstance(found, Results):
        found.table()
    if hasattr(found, "from_dict"):
        try:
            document = found.to_dict()
        except SimschedError as error:  # files are read without simulating: a schedule that cannot run is refused here
            _check_error(error, "")
            return False
        if type(found).from_dict(parse_json(dump_json(document))).to_dict() != document:
            raise DefectError("what was read is not the same after a round trip through our own format")
    if reader.format:
        _check_written(found, reader.format)
    return True


def _check_error(error: SimschedError, path: str) -> None:
    text = str(error)
    name = type(error).__name__
    if not text.strip() or len(text.splitlines()) > 1 or len(text) > _LONGEST:
        raise DefectError(f"{name} of no line, several, or over {_LONGEST} characters") from error
    if path not in text:
        raise DefectError(f"{name} does not name the file") from error
    text.encode()  # it can be printed


def _check_written(found: Any, format: str) -> None:
    """Prove that a document can be written in its own format and read again, or is refused."""
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


# Running ------------------------------------------------------------------------------------------


def inputs(reader: Reader, seeds: Seeds) -> st.SearchStrategy[bytes]:
    """Return the input of a reader, made of valid documents and, of our own formats, drawn from schemas."""
    if command in reader.calls:
        return command_lines(seeds)
    if not reader.schema:
        return spoilt(seeds)
    whole = schema(reader.schema)
    return spoilt(seeds) | values(whole, whole.get("$defs", {})).map(lambda value: json.dumps(value).encode())


@dataclass
class Tally:
    """The results of a reader."""

    examples: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By signature, which is the error and where it was raised; with the smallest document that does it."""


def run(reader: Reader, seed: str, seconds: float, folder: Path) -> Tally:
    """Let a reader read until the time is over.

    Parameters
    ----------
    reader
        The readers.
    seed
        Equal seeds draw equal documents.
    seconds
        For how long, to the end of a batch; at least one is run. The shrinking of what fails comes on top.
    folder
        With the corpus, of which the first seed is overwritten.
    """
    paths = sorted(folder.glob(reader.seeds))
    seeds = [(str(path.relative_to(folder)), path.read_bytes()) for path in paths]
    path = folder / "command.json" if command in reader.calls else paths[0]
    tally = Tally()
    start = perf_counter()
    n_batches = 0
    smallest: dict[str, dict[str, Any]] = {}

    def attempt(how: int, content: bytes) -> None:
        path.write_bytes(content)
        tally.examples += 1
        try:
            with _limited(reader.seconds):
                accepted = examine(reader, how, path)
        except Exception as error:
            signature, failure = _failure(error, how, content)
            if signature in tally.failures:
                tally.failures[signature]["count"] += 1
            elif not smallest or signature in smallest:  # Hypothesis makes one failure smaller at a time
                smallest[signature] = failure
                raise DefectError(signature) from error
            return
        tally.accepted += accepted
        tally.refused += not accepted

    drawn = _SETTINGS(given(st.integers(0, len(reader.calls) - 1), inputs(reader, seeds))(attempt))
    while not n_batches or perf_counter() - start < seconds:
        smallest.clear()
        try:
            seeded(crc32(f"{seed} {n_batches}".encode()))(drawn)()
        except Exception:
            if not smallest:
                raise
        tally.failures |= smallest
        n_batches += 1
    tally.seconds = round(perf_counter() - start, 1)
    return tally


_SETTINGS: Final = settings(
    max_examples=BATCH,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
    report_multiple_bugs=False,
)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Let warnings be errors, and time be short: in the end, where no signal is heard, the process dies."""

    def stop(*_: object) -> NoReturn:
        raise DefectError(f"over {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(3.0 * seconds, exit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _failure(error: Exception, how: int, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the signature of a failure, and its entry in the log."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    ours = [frame for frame in frames if str(FOLDER.parent) in frame.filename and frame.filename != __file__]
    last = (ours or frames)[-1]
    what = str(error)[:80] if isinstance(error, DefectError) else type(error).__name__
    found = {"error": repr(error)[:1000], "line": last.lineno, "call": how, "count": 1}
    document = base64.b64encode(content).decode()
    return f"{what} at {Path(last.filename).name}: {last.name}", found | {"document": document}


def run_apart(name: str, seed: str, seconds: float, corpus: Path) -> Tally:
    """Run a reader in a process of its own with a copy of the corpus; a process that dies is a failure."""
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="fuzz-") as root:
        folder = Path(shutil.copytree(corpus, f"{root}/corpus"))
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_apart, args=(sender, READERS[name], seed, seconds, folder))
        process.start()
        sender.close()
        try:
            found: Tally = receiver.recv()
        except EOFError:
            process.join()
            what = f"the process ended with status {process.exitcode}"
            last = max(filter(Path.is_file, folder.rglob("*")), key=lambda path: path.stat().st_mtime_ns)
            found = Tally(failures={what: {"document": base64.b64encode(last.read_bytes()).decode(), "count": 1}})
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # processes that commands have left running
        process.join()
        return found


def _apart(sender: Connection, reader: Reader, seed: str, seconds: float, folder: Path) -> None:
    os.setsid()
    for path in folder.glob(reader.seeds):  # imports and compiled code count as no reader's memory
        accepted = [command in reader.calls or examine(reader, how, path) for how in range(len(reader.calls))]
        if not any(accepted):
            raise DefectError(f"{path.name} is to be valid, and is refused")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + reader.memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sender.send(run(reader, seed, seconds, folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; return the status of the process."""
    chosen = options(__doc__, arguments, seconds=60.0, seed=0, only=None, log=None)
    names = chosen.only.split(",") if chosen.only else list(READERS)
    weights = {name: len(READERS) / 3 if command in READERS[name].calls else 1.0 for name in names}
    tallies: dict[str, Tally] = {}
    with TemporaryDirectory(prefix="fuzz-corpus-") as root:
        fill(Path(root))
        for name, weight in weights.items():
            share = chosen.seconds * weight / sum(weights.values())
            tally = tallies[name] = run_apart(name, f"{chosen.seed} {name}", share, Path(root))
            print(
                f"{name:>22}: {tally.examples:>9,} examples, {tally.accepted:>8,} accepted, {tally.refused:>8,} "
                f"refused, {tally.seconds:7.1f} s, {len(tally.failures)} failures",
                flush=True,
            )
            for what, failure in tally.failures.items():
                print(f"{'':>24}{failure['count']} x {what}: {failure['document']:.200}")
            if chosen.log:
                keep(chosen.log, {"seed": chosen.seed, "readers": {key: asdict(one) for key, one in tallies.items()}})
    return int(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
