"""A slice of the fuzz campaign: one parser for a while, in a process of its own with limits of its own."""

import base64
import logging
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any, Final
from zlib import crc32

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from validation.fuzz_mutations import Step, spoil
from validation.fuzz_parsers import DefectError, Parser, examine

BATCH: Final = 250
"""Examples between two looks at the clock."""
MEMORY: Final = 512 << 20
"""Bytes that a parser may take beyond what the process has at first."""
SECONDS: Final = 20.0
"""For one example."""
_MOST_STEPS: Final = 4
_OURS: Final = ("simsched", "workloads")
_ROOT: Final = Path(__file__).resolve().parent.parent

_step = st.tuples(st.integers(0, 63), st.integers(0, 255), st.integers(0, 65535), st.integers(0, 65535))
# Mostly one: what several break at once, the first check refuses.
_steps = st.tuples(_step) | st.tuples(_step) | st.lists(_step, max_size=_MOST_STEPS)


class TooSlowError(Exception):
    """An example took longer than it may."""


@dataclass
class Failure:
    """Something that came out of a parser and should not have, with the smallest document that does it."""

    error: str
    where: str
    call: int
    document: str
    """The bytes, in base64."""
    count: int = 1


@dataclass
class Tally:
    """What a slice did."""

    examples: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    batches: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)

    def add(self, other: "Tally") -> None:
        """Add what another slice of the same parser did."""
        for key in ("examples", "accepted", "refused", "seconds", "batches"):
            setattr(self, key, getattr(self, key) + getattr(other, key))
        for signature, failure in other.failures.items():
            if signature in self.failures:
                self.failures[signature].count += failure.count
            else:
                self.failures[signature] = failure

    def to_dict(self) -> dict[str, Any]:
        """Return it as the log has it."""
        failures = [asdict(failure) for failure in self.failures.values()]
        return asdict(self) | {"seconds": round(self.seconds, 1), "failures": failures}


def run(
    parser: Parser, name: str, seed: int, seconds: float, folder: Path, first_batch: int = 0,
    known: Sequence[str] = (),
) -> Tally:  # fmt: skip
    """Read spoiled documents with a parser until the time is over.

    Parameters
    ----------
    parser, name
        What to read with, and what it is called.
    seed, first_batch
        The batches from this one on are drawn from this seed.
    seconds
        For how long, to the end of a batch; at least one is run. The shrinking of what fails comes on top.
    folder
        Where the file is written that is read.
    known
        Signatures of failures that were found before: they are counted and not shrunk again.

    Returns
    -------
    Tally
        What was done. Failures stand under their signatures: the error and the place where it was raised.
    """
    slice_ = _Slice(parser, folder, known)
    start = perf_counter()
    slice_.plain_cases()
    while not slice_.tally.batches or perf_counter() - start < seconds:
        slice_.batch(crc32(f"{seed} {name} {first_batch + slice_.tally.batches}".encode()))
    slice_.tally.seconds = perf_counter() - start
    return slice_.tally


def warm_up(parser: Parser, folder: Path) -> None:
    """Read the valid documents, so that what is imported and compiled does not count as a parser's memory."""
    _Slice(parser, folder, ()).plain_cases()


class _Slice:
    def __init__(self, parser: Parser, folder: Path, known: Sequence[str]) -> None:
        self.tally = Tally()
        self._parser = parser
        self._path = folder / parser.file
        self._documents = parser.documents()
        self._known = list(known)
        self._last: tuple[str, Failure] | None = None

    def plain_cases(self) -> None:
        """Read the valid documents; no file, a folder, an empty file, one of zeros, a byte-order mark alone."""
        for i, document in enumerate(self._documents):
            before = self.tally.refused
            for how in range(len(self._parser.calls)):
                self._note(self._outcome(how, document), None)
            if self.tally.refused - before == len(self._parser.calls):
                raise DefectError(f"document {i} is to be valid, and is refused")
        if self._parser.names_file:
            self._path.unlink()
            self._note(self._outcome(0, None), None)
            self._path.mkdir()
            self._note(self._outcome(0, None), None)
            self._path.rmdir()
        for content in (b"", b"\0", bytes(5000), b"\xef\xbb\xbf", b"\n"):
            for how in range(len(self._parser.calls)):
                self._note(self._outcome(how, content), None)

    def batch(self, seed: int) -> None:
        """Read a batch of spoiled documents."""
        parser, documents = self._parser, self._documents

        @seeded(seed)
        @settings(
            max_examples=BATCH, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet, report_multiple_bugs=False,
            print_blob=False,
        )  # fmt: skip
        @given(
            how=st.integers(0, len(parser.calls) - 1),
            wrap=st.integers(0, len(parser.wraps) - 1),
            chosen=st.integers(0, len(documents) - 1),
            steps=_steps,
        )
        def one(how: int, wrap: int, chosen: int, steps: Sequence[Step]) -> None:
            content = parser.wraps[wrap](spoil(documents, parser.structure, chosen, steps))
            failed = self._outcome(how, content)
            if failed is not None:
                self._note(failed, content)

        self.tally.batches += 1
        self._last = None
        try:
            one()
        except Exception:
            if self._last is None:
                raise
        if self._last is not None:  # the last that failed is the smallest
            signature, failure = self._last
            self._known.append(signature)
            self.tally.failures[signature] = failure

    def _outcome(self, how: int, content: bytes | None) -> tuple[str, Failure] | None:
        """Read a document and count what came of it; return the failure, if it is one."""
        if content is not None:
            self._path.write_bytes(content)
        self.tally.examples += 1
        try:
            with _limited():
                accepted = examine(self._parser, how, self._path)
        except Exception as error:
            return _failure(error, how, content or b"")
        self.tally.accepted += accepted
        self.tally.refused += not accepted
        return None

    def _note(self, failed: tuple[str, Failure] | None, content: bytes | None) -> None:
        """Count a failure that is known; keep one that is not, and let Hypothesis make it smaller."""
        if failed is None:
            return
        signature, failure = failed
        if signature in self._known:
            found = self.tally.failures.setdefault(signature, failure)
            found.count += found is not failure
        elif content is None:
            self._known.append(signature)
            self.tally.failures[signature] = failure
        else:
            if self._last is None or self._last[0] == signature:
                self._last = failed
                raise DefectError(signature)


@contextmanager
def _limited() -> Iterator[None]:
    """Let warnings be errors, logged lines be made, and time be short."""

    def stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise TooSlowError(f"over {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings(), _logging():
            warnings.simplefilter("error")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Formatted(logging.Handler):
    """Makes the text of what is logged, so that a wrong format fails, and drops it."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


@contextmanager
def _logging() -> Iterator[None]:
    loggers, handler = [logging.getLogger(name) for name in _OURS], _Formatted()
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _failure(error: Exception, how: int, content: bytes) -> tuple[str, Failure]:
    cause = error.__cause__ if isinstance(error, DefectError) and error.__cause__ is not None else error
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_ROOT) and "fuzz" not in frame.filename]
    last = (ours or frames)[-1]
    where = f"{Path(last.filename).name}: {last.name}"
    text = str(error) if isinstance(error, DefectError) else type(error).__name__
    shown = f"{type(error).__name__}: {error}" + (f" ({cause})" if cause is not error else "")
    found = Failure(shown[:1000], f"{where}, line {last.lineno}", how, base64.b64encode(content).decode())
    return f"{text} at {where}", found


def limit_memory() -> None:
    """Let this process take no more than `MEMORY` bytes beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
