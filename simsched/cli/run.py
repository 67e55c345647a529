"""The application: its commands, and how every failure becomes one line and an exit status.

`STATUSES` lists them. 70 is the EX_SOFTWARE of Unix, 130 the shells' status of Ctrl-C.
"""

import logging
import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Final

import typer

from simsched.base.errors import SimschedError
from simsched.base.leaving import INTERRUPTED
from simsched.base.signals import searches_stopped
from simsched.base.streams import failure_of, give_up, write_to_stderr
from simsched.base.system import lack
from simsched.base.text import printable
from simsched.cli.options import BrokenSchedulerError, IncompleteError, describe_error, expand_groups

# module of simsched.cli -> its commands, each of which imports only its own needs when it runs: ``--help`` is quick
_HOME: Final = {
    "schedule": (
        "compare",
        "schedule",
        "simulate",
        "check",
        "advise",
        "whatif",
        "sweep",
        "sensitivity",
        "explain",
        "breakeven",
        "robust",
        "throughput",
        "report",
    ),
    "measure": ("profile", "calibrate", "replay", "validate", "replay-trace", "pairs"),
    "graph": ("show", "convert", "list"),
    "study": ("study",),
    "contact": ("contact",),
    "duel": ("duel",),
    "overlap": ("overlap",),
}
_COMPLETION: Final = "_SIMSCHED_COMPLETE"
"""Variable in which a shell says that it wants completions."""
_DONE = 0
_INCOMPLETE = 1
_MISUSE = 2
_DEFECT = 70
STATUSES: Final = {
    _DONE: "done; schedulers that refuse a graph do not count",
    _INCOMPLETE: "done, but rows of a study failed or timed out, or a check failed",
    _MISUSE: "not done: wrong input, or a file, package or memory that is missing",
    _DEFECT: "a defect of simsched (`error: unexpected ...`); please report it",
    INTERRUPTED: "interrupted; files are whole, or not there",
}
"""Exit statuses, and what they say."""


def application(command: str | None = None) -> typer.Typer:
    """Return the application, with one command alone if it is one of ours: it takes a while to set all of them up."""
    app = typer.Typer(
        name="simsched",
        help="Schedule the operators of a deep-learning model on one or several GPUs, in simulation first.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_top)
    modules = {name: module for module, names in _HOME.items() for name in names}
    for name in [command] if command in modules else modules:
        module = import_module(f"simsched.cli.{modules[name]}")
        if name == "list":
            function = module.list_
        else:
            function = getattr(module, name.replace("-", "_"))
        if isinstance(function, typer.Typer):
            app.add_typer(function)
        else:
            app.command(name)(expand_groups(function))
    return app


def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        import simsched

        print(f"simsched {simsched.__version__}")
        raise typer.Exit


class _Warning(logging.Formatter):
    """A log record as one printable line."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(f"warning: {record.getMessage()}")


def run(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    with warnings.catch_warnings():
        if not sys.warnoptions:  # unless asked for with `python -W`: stderr is for errors
            warnings.simplefilter("ignore")
        for stream in (sys.stdout, sys.stderr):
            if (
                isinstance(stream, TextIOWrapper) and not stream.closed
            ):  # a character that it cannot show ends no command
                stream.reconfigure(errors="backslashreplace")
        if logging.lastResort is not None:  # without other logging
            logging.lastResort.setFormatter(_Warning())
        return _run(arguments or ["--help"])


def _run(arguments: list[str]) -> int:
    if "\0" in "".join(arguments):
        return _fail("an argument holds the character 0, which no name of a file can have")
    try:
        stopped = searches_stopped()
        # Ctrl-C comes as this status
        if application(arguments[0])(args=arguments, prog_name="simsched", standalone_mode=False) == INTERRUPTED:
            return _end_interrupted()
        if sys.stdout is not None:
            sys.stdout.flush()
        if searches_stopped() > stopped:
            return _fail("interrupted; the result has the best that a search knew by then", INTERRUPTED)
    except IncompleteError as error:
        return _fail(str(error), _INCOMPLETE)
    except (SimschedError, BrokenSchedulerError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _end_interrupted()
    except BrokenPipeError:  # the reader has gone, as with `| head`
        give_up(sys.stdout)
        return _DONE
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # how rich takes it
            return _DONE
        if _COMPLETION in os.environ:  # a shell asked how a word goes on
            return _DONE
        return _fail(f"a scheduler, or its module, ended the command with {error.code!r}")
    except Exception as error:
        # typer raises the usage errors of the parser it is built on, under a name that varies with its version
        if hasattr(error, "format_message"):
            return _fail(error.format_message())
        if type(error).__name__ == "Abort":
            return _end_interrupted()
        if isinstance(error, OSError | ValueError) and (lost := failure_of(sys.stdout)) is not None:
            give_up(sys.stdout)  # for example of a full disk behind `>`
            return _fail(f"cannot write the output: {lost}")
        lacking = lack(error)
        if lacking is None:
            return _fail(f"unexpected {describe_error(error)}", _DEFECT)
        return _fail(lacking)
    return _DONE


def _end_interrupted() -> int:
    with suppress(ValueError):  # raised in threads
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the impatient press twice
    return _fail("interrupted; no file was left half-written", INTERRUPTED)


def _fail(message: str, status: int = _MISUSE) -> int:
    write_to_stderr("error: " + printable(" ".join(message.split())))
    return status
