"""Random command lines for every command: exit status 0 or 2, and nothing left where it should not be.

    python -m validation.fuzz_cli --seconds 600 --seed 1 --log validation/fuzz_cli.json

Each is run by a forked process with limits of time and memory, in a folder with a file of every kind, one of which may
be spoiled first. On status 0 stderr says nothing but warnings; on status 2 it has one ``error:`` line; status 70, of
what nobody thought of, is a finding. Only files that the command line names may be written, whole or not at all. The
status of the campaign is 1 if anything else came of a command; the log has its command line.
"""

import argparse
import base64
import json
import os
import platform
import re
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple

from simsched.base.errors import FormatError
from simsched.base.io import dump_json, parse_json, read_json, write_file
from validation.fuzz_arguments import Command, commands, draw
from validation.fuzz_scratch import SPOILED, Change, Scratch

SECONDS: Final = 60.0
"""For one command; nothing that is drawn should take more than a few."""
MEMORY: Final = 3 << 30
"""Bytes that a command may take beyond what the process has at first."""
DEFECT: Final = 70
"""Exit status of what nobody thought of."""
_MOST_KEPT: Final = 40  # failures that are logged in full
_MOST_SLOW: Final = 8  # commands that are logged as the slowest
_LONGEST: Final = 600
_WORD: Final = 200  # characters of a word that is logged
_SMALL: Final = 4000  # bytes of a spoiled file that is logged
_IMPORTED: Final = (
    "matplotlib.pyplot", "pandas", "onnx", "rich.table", "rich.progress", "simsched.experiments.accuracy",
    "simsched.show.paper", "hwbackend.torch_backend", "simsched.cli.app", "simsched.show.plot",
    "simsched.experiments.study", "simsched.show.report", "simsched.show.drawing",
    "simsched.experiments.whatif.sensitivity", "workloads.formats.onnx_models",
)  # fmt: skip  # before the first command
_PROGRESS: Final = re.compile(r".*: [0-9,]+ of [0-9,]+ rows.*")  # what `study run` says where there is no terminal


class Outcome(NamedTuple):
    """What a command did."""

    status: int | None
    """None: it was stopped."""
    out: str
    err: str
    seconds: float


@dataclass
class Tally:
    """What the campaign did."""

    commands: int = 0
    status: Counter[str] = field(default_factory=Counter)
    by_command: dict[str, dict[str, int]] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: list[dict[str, Any]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def note(self, words: Sequence[str], command: Command | None, outcome: Outcome) -> None:
        """Count a command, and keep it if it is among the slowest."""
        self.commands += 1
        self.status[str(outcome.status)] += 1
        name = "words" if command is None else " ".join(command.path)
        mine = self.by_command.setdefault(name, {})
        mine[str(outcome.status)] = mine.get(str(outcome.status), 0) + 1
        shown = {"seconds": round(outcome.seconds, 2), "command": _shown(words)}
        self.slowest = sorted([*self.slowest, shown], key=lambda one: -one["seconds"])[:_MOST_SLOW]

    def fail(self, what: str, words: Sequence[str], outcome: Outcome, spoiled: str) -> None:
        """Count a failure; keep the first of them in full."""
        self.failures[what] += 1
        if self.failures[what] <= 2 and len(self.examples) < _MOST_KEPT:
            shown = {
                "what": what,
                "command": _shown(words),
                "spoiled file": spoiled,
                "error": outcome.err[-_LONGEST:],
            }
            self.examples.append(shown)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the log has it."""
        ordered = {key: dict(sorted(self.__dict__[key].items())) for key in ("status", "by_command", "failures")}
        return vars(self) | ordered | {"seconds": round(self.seconds, 1)}


def run(root: Path, seed: int, *, seconds: float = 0.0, count: int = 0, only: str = "", measured: bool = True) -> Tally:
    """Run random commands until both the time and the count are over.

    Parameters
    ----------
    root
        An empty folder.
    seed
        Equal seeds run equal commands, as long as each does the same.
    seconds, count
        How long, and how many.
    only
        Commands whose name begins so.
    measured
        See `Scratch`.
    """
    known = [one for one in commands() if " ".join(one.path).startswith(only)]
    scratch, tally = Scratch(root, measured), Tally()
    start = perf_counter()
    while tally.commands < count or perf_counter() - start < seconds:
        rng = Random(f"{seed} {tally.commands}")
        words, command = draw(known, scratch.found, rng)
        spoiled = ""
        if rng.random() < 0.3:
            scratch.spoil(SPOILED, rng)
            spoiled = _spoiled(scratch, scratch.changes().changed)
        before = scratch.changes()
        outcome = forked(words, scratch.root)
        change = scratch.changes()
        tally.note(words, command, outcome)
        mine = Change(
            change.new, tuple({*change.gone} - {*before.gone}), tuple(sorted({*change.changed} - {*before.changed}))
        )
        for what in faults(words, command, outcome, mine, scratch):
            tally.fail(what, words, outcome, spoiled)
        scratch.restore(change)
    tally.seconds = perf_counter() - start
    return tally


def _shown(words: Sequence[str]) -> list[str]:
    return [word[:_WORD] for word in words]


def _spoiled(scratch: Scratch, names: Sequence[str]) -> str:
    return ", ".join(
        f"{name}: {base64.b64encode(content).decode() if len(content) <= _SMALL else f'{len(content)} bytes'}"
        for name in names
        for content in [(scratch.root / name).read_bytes()]
    )


def forked(words: Sequence[str], root: Path) -> Outcome:
    """Run a command line in a forked process, in the folder "here" of `root`."""
    texts = [root.with_name(f"{root.name}-{name}") for name in ("out", "err")]
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads: here they hold nothing
        child = os.fork()
    if not child:
        _run(list(words), root, texts)
    status: int | None = None
    while perf_counter() - start < SECONDS:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
            break
        sleep(0.002)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # it, or what it has left running
    if status is None:
        os.kill(child, signal.SIGKILL)  # it may have stuck before it led a group of its own
        os.waitpid(child, 0)
    out, err = (path.read_text(errors="replace") for path in texts)
    return Outcome(status, out, err, perf_counter() - start)


def _run(words: list[str], root: Path, texts: Sequence[Path]) -> None:
    """Run it in this process, which ends."""
    status = 99
    try:
        os.setsid()
        for number, path in enumerate(texts, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        sys.dont_write_bytecode = True
        os.environ.update(TMPDIR=str(root / "tmp"), HOME=str(root), COLUMNS="100")
        os.chdir(root / "here")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from simsched.cli.run import run

        status = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:  # whatever it is, the process ends here
        os.write(2, f"Traceback of the command line itself: {type(error).__name__}: {error}\n".encode())
        status = 98
    finally:
        os._exit(status)


def faults(
    words: Sequence[str], command: Command | None, outcome: Outcome, change: Change, scratch: Scratch
) -> list[str]:
    """Return what is wrong with the outcome of a command, each in a few words without its particulars."""
    found = []
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("warning: ") and not _PROGRESS.fullmatch(line)]
    if outcome.status is None:
        found.append("over the limit of time")
    elif outcome.status == DEFECT and errors:
        found.append(" ".join(errors[-1].split()[1:3]).rstrip(":"))
    elif outcome.status not in (0, 2):
        found.append(f"exit status {outcome.status}")
    elif outcome.status == 0 and errors:
        found.append("status 0, and stderr says something")
    elif outcome.status == 2 and (len(errors) != 1 or not errors[0].startswith("error: ")):
        found.append("status 2 without one error line")
    elif outcome.status == 2 and not errors[0].removeprefix("error: ").strip():
        found.append("an error without a text")
    if "Traceback (most recent" in outcome.err + outcome.out:
        found.append("a traceback")
    if outcome.status == 0 and "--json" in words and not _is_help(words) and not _is_json(outcome.out):
        found.append("--json that is no JSON")
    return found + _of_files(words, command, change, scratch)


def _is_help(words: Sequence[str]) -> bool:
    return any(word in ("-h", "--help", "--version") for word in words)


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except FormatError:
        return False
    return True


def _of_files(words: Sequence[str], command: Command | None, change: Change, scratch: Scratch) -> list[str]:
    """Return what is wrong with the files that a command has left."""
    found = []
    named = [_real(scratch, part) for word in words for part in (word, word.partition("=")[2], word[2:]) if part]
    for name in (*change.new, *change.changed, *change.gone):
        path = (scratch.root / name).parent.resolve() / Path(name).name
        if not any(one == path or one == path.resolve() or one in path.parents for one in named):
            found.append(
                f"touched a file that is not named ({'temporary' if name.startswith('tmp/') else path.suffix})"
            )
        elif path.name.startswith(".") and not path.name.endswith(".lock"):
            found.append("left a temporary file")
        elif path.suffix == ".json" and path.is_file() and not _whole(path):
            found.append("left a file that is not whole")
    if change.gone:
        found.append("removed a file")
    outputs = command.outputs if command is not None else ()
    written = {
        _real(scratch, value)
        for at, word in enumerate(words)
        for option, _, value in [word.partition("=") if "=" in word else (word, "", "".join(words[at + 1 : at + 2]))]
        if option in outputs
    }
    if command is not None and command.path == ("convert",):
        written |= {_real(scratch, word) for word in words}
    for name in change.changed:
        path = (scratch.root / name).resolve()
        if path not in written and not any(one in path.parents for one in named):
            found.append("changed a file that it reads")
    return found


def _real(scratch: Scratch, text: str) -> Path:
    try:
        return Path(os.path.realpath(scratch.folder / text))
    except ValueError:  # a zero in it
        return scratch.folder / "-"


def _whole(path: Path) -> bool:
    """Return whether a file is whole, if it holds JSON: whoever wants to may call a picture ``t.json``."""
    content = path.read_bytes()
    try:
        return not content.startswith((b"{", b"[")) or bool(json.loads(content) is not None)
    except (ValueError, RecursionError):
        return False


def _warm_up() -> None:
    """Import what commands import, so that every fork has it."""
    import matplotlib

    matplotlib.use("Agg")
    for name in _IMPORTED:
        import_module(name)


def main() -> int:
    """Run the campaign; return the status of the process."""
    parser = argparse.ArgumentParser(description="Run random command lines.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=0, help="run at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands whose name begins so")
    parser.add_argument("--log", help="JSON file to which what was run is added")
    options = parser.parse_args()
    _warm_up()
    with TemporaryDirectory(prefix="fuzz-cli-") as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        tally = run(root, options.seed, seconds=options.seconds, count=options.count, only=options.only)
    print(f"{tally.commands:,} commands in {tally.seconds:.1f} s, the slowest {tally.slowest[0]['seconds']:.1f} s: "
          + ", ".join(f"{n:,} of status {status}" for status, n in sorted(tally.status.items())))  # fmt: skip
    for one in tally.slowest:
        print(f"  {one['seconds']:.1f} s: {one['command']!r:.300}")
    for what, n in sorted(tally.failures.items()):
        print(f"  {n:,} x {what}")
    for example in tally.examples:
        print(f"  {example['what']}: {example['command']!r:.1000}\n    {example['error']!r}")
        print(f"    spoiled: {example['spoiled file']}")
    if options.log:
        earlier = read_json(options.log) if Path(options.log).exists() else {"runs": []}
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": options.seed,
            "python": platform.python_version(),
            **({"only": options.only} if options.only else {}),
            **tally.to_dict(),
        }
        write_file(options.log, dump_json(earlier | {"runs": [*earlier["runs"], record]}))
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
