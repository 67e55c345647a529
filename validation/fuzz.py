"""Spoiled documents for every parser: nothing may come out but what was read, or a `SimschedError` of one line.

    python -m validation.fuzz --seconds 3600 --seed 1 --log validation/fuzz.json

Valid documents are spoiled by Hypothesis in their bytes, tokens and structure (`fuzz_mutations`), and read in a
process of its own with little memory and time. What was accepted must hold up: a graph has an order, a round trip
through our own format changes nothing, a schedule is checked, and what can be written in its format can be read again.
The status is 1 if anything failed; the log has the smallest document that does it, in base64.
"""

import argparse
import base64
import multiprocessing
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from simsched.base.io import dump_json, read_json, write_file
from validation.fuzz_parsers import PARSERS, Parser
from validation.fuzz_slice import SECONDS, Failure, Tally, limit_memory, run, warm_up

_SLICE: Final = 60.0  # seconds of a parser before the next one's turn
_SHRINKING: Final = 600.0  # seconds more before a process is taken for hung


def fuzz_in_process(
    parser: Parser, name: str, seed: int, seconds: float, first_batch: int = 0, known: tuple[str, ...] = ()
) -> Tally:
    """Run a slice in a process of its own, and outlive its end, whatever that is.

    Parameters are those of `validation.fuzz_slice.run`. A process that dies or hangs is a failure; its document is
    the last one written.
    """
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="fuzz-") as folder:
        receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, parser, name, seed, seconds, folder, first_batch, known)
        process = context.Process(target=_slice, args=arguments)
        process.start()
        sender.close()
        try:
            if receiver.poll(seconds + SECONDS + _SHRINKING):
                found: Tally = receiver.recv()
                process.join()
                return found
            what = "the process hangs"
        except EOFError:
            process.join()
            what = f"the process ended with status {process.exitcode}"
        finally:
            if process.is_alive():
                process.kill()
                process.join()
        path = Path(folder) / parser.file
        document = base64.b64encode(path.read_bytes() if path.is_file() else b"").decode()
        return Tally(seconds=seconds, batches=1, failures={what: Failure(what, "", -1, document)})


def _slice(
    sender: Connection, parser: Parser, name: str, seed: int, seconds: float, folder: str, first_batch: int,
    known: tuple[str, ...],
) -> None:  # fmt: skip
    os.chdir(folder)
    warm_up(parser, Path(folder))
    limit_memory()
    sender.send(run(parser, name, seed, seconds, Path(folder), first_batch, known))


def main() -> int:
    """Run the campaign; return the status of the process."""
    parser = argparse.ArgumentParser(description="Read spoiled documents with every parser.")
    parser.add_argument("--seconds", type=float, default=60.0, help="in all, divided among the parsers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help=f"some of: {','.join(PARSERS)}")
    parser.add_argument("--log", help="JSON file to which what was run is added")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PARSERS)
    unknown = [name for name in names if name not in PARSERS]
    if unknown:
        parser.error(f"unknown parser {unknown[0]!r}; known are: {', '.join(PARSERS)}")

    tallies = {name: Tally() for name in names}
    earlier = read_json(options.log) if options.log and Path(options.log).exists() else {"runs": []}
    share = options.seconds / len(names)
    n_rounds = max(1, round(share / _SLICE))
    for _ in range(n_rounds):
        for name, tally in tallies.items():
            known = tuple(tally.failures)
            tally.add(fuzz_in_process(PARSERS[name], name, options.seed, share / n_rounds, tally.batches, known))
            if options.log:
                write_file(
                    options.log, dump_json(earlier | {"runs": [*earlier["runs"], _record(options.seed, tallies)]})
                )
    for name, tally in tallies.items():
        print(f"{name:>12}: {tally.examples:>9,} examples, {tally.accepted:>8,} accepted, {tally.refused:>8,} refused, "
              f"{tally.seconds:7.1f} s, {len(tally.failures)} failures")  # fmt: skip
        for signature, failure in tally.failures.items():
            print(f"{'':>14}{failure.count} x {signature}: {failure.error[:200]!r}")
    return int(any(tally.failures for tally in tallies.values()))


def _record(seed: int, tallies: dict[str, Tally]) -> dict[str, Any]:
    """Return a run as the log has it."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("hypothesis", "numpy", "onnx")},
        "seconds": round(sum(tally.seconds for tally in tallies.values()), 1),
        "parsers": {name: tally.to_dict() for name, tally in tallies.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
