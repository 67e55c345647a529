"""``python -m hwbackend.contact run FOLDER | analyse FOLDER``: a contact without typer and rich."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from simsched.base.errors import SimschedError
from simsched.base.pairs import read_pairs
from simsched.base.streams import write_to_stderr
from simsched.base.text import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for on the command line; return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["section"]:  # a process that `run_contact` starts
            return _section(json.loads(words[1]))
        return _command(words)
    except SimschedError as error:
        write_to_stderr(f"error: {printable(str(error))}")
        return 2


def _section(task: dict[str, Any]) -> int:
    from hwbackend.contact.worker import follow_parent, measure_section

    follow_parent(task.pop("parent"))
    return measure_section(**task)


def _command(words: list[str]) -> int:
    from hwbackend.contact.commands import judge, measure
    from hwbackend.contact.run import PATIENCE, USUAL_BACKEND, USUAL_SECONDS

    parser = argparse.ArgumentParser(prog="python -m hwbackend.contact", description="Measure a device, and analyse.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure a device")
    run.add_argument("folder")
    run.add_argument("--backend", default=USUAL_BACKEND, help="name of a backend, or fake")
    run.add_argument("--backend-option", action="append", default=[], metavar="NAME=VALUE")
    run.add_argument("--seconds", type=float, default=USUAL_SECONDS, help="time in all")
    run.add_argument("--size", default="full", help="full, or small for a trial of everything")
    run.add_argument("--patience", type=float, default=PATIENCE, help="s without an answer after which an item hangs")
    page = commands.add_parser("analyse", help="predict what was measured")
    page.add_argument("folder")
    page.add_argument("--beside", help="folder of a kept measurement")
    page.add_argument("--operators", type=int, help="most operators of a graph that is predicted")
    page.add_argument("-o", "--output", help="file for the figures; FOLDER/contact.json keeps them")
    options = parser.parse_args(words)
    if options.command == "run":
        for line in measure(
            options.folder,
            options.backend,
            read_pairs(options.backend_option, "--backend-option"),
            seconds=options.seconds,
            size=options.size,
            patience=options.patience,
            tell=_print,
        ):
            _print(line)
        return 0
    analysis, status = judge(options.folder, beside=options.beside, operators=options.operators, output=options.output)
    for line in analysis.lines():
        _print(line)
    return status


def _print(line: str) -> None:
    sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
