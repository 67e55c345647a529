"""The application: which commands there are, and how every failure becomes one line and an exit status.

`STATUSES` says which there are. 70 is the EX_SOFTWARE of Unix, 130 what shells make of Ctrl-C.
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
from simsched.cli.options import BrokenSchedulerError, IncompleteError, described, expanded

# module of simsched.cli -> its commands, each of which imports what it needs when it runs: ``--help`` is quick
_HOME: Final = {
    "schedule": ("compare", "schedule", "simulate", "check", "advise", "whatif", "sweep", "sensitivity", "explain",
                 "breakeven", "robust", "throughput", "report"),
    "measure": ("profile", "calibrate", "replay", "validate", "replay-trace"),
    "graph": ("show", "convert", "list"),
    "study": ("study",),
}  # fmt: skip
_DONE, _INCOMPLETE, _MISUSE, _DEFECT = 0, 1, 2, 70
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
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback(invoke_without_command=True)(_top)
    known = {name: module for module, names in _HOME.items() for name in names}
    for name in [command] if command in known else known:
        module = import_module(f"simsched.cli.{known[name]}")
        found = module.list_ if name == "list" else getattr(module, name.replace("-", "_"))
        if isinstance(found, typer.Typer):
            app.add_typer(found)
        else:
            app.command(name)(expanded(found))
    return app


def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        import simsched

        print(f"simsched {simsched.__version__}")
        raise typer.Exit


def run(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    with warnings.catch_warnings():
        if not sys.warnoptions:  # unless asked for with `python -W`: stderr is for errors
            warnings.simplefilter("ignore")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a name that a terminal cannot show ends no command
                stream.reconfigure(errors="backslashreplace")
        if logging.lastResort is not None:  # what the library logs where nobody set logging up
            logging.lastResort.setFormatter(logging.Formatter("warning: %(message)s"))
        return _run(arguments or ["--help"])


def _run(arguments: list[str]) -> int:
    try:
        stopped = searches_stopped()
        # Ctrl-C comes as this status
        if application(arguments[0])(args=arguments, prog_name="simsched", standalone_mode=False) == INTERRUPTED:
            return _interrupted()
        if sys.stdout is not None:
            sys.stdout.flush()
        if searches_stopped() > stopped:
            return _fail("interrupted; the result has the best that a search knew by then", INTERRUPTED)
    except IncompleteError as error:
        return _fail(str(error), _INCOMPLETE)
    except (SimschedError, BrokenSchedulerError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # the reader has gone, as with `| head`
        _drop_output()
        return _DONE
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # how rich takes it
            return _DONE
        return _fail(f"a scheduler, or its module, ended the command with {error.code!r}")
    except MemoryError:
        return _fail("out of memory; try a smaller graph")
    except Exception as error:
        # typer raises the usage errors of the parser it is built on, under a name that varies with its version
        if hasattr(error, "format_message"):
            return _fail(error.format_message())
        if isinstance(error, OSError) and error.filename is None:  # as of a full disk behind `>`
            _drop_output()
            return _fail(f"cannot write the output: {error.strerror or error}")
        return _fail(f"unexpected {described(error)}", _DEFECT)
    return _DONE


def _interrupted() -> int:
    with suppress(ValueError):  # raised in threads
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the impatient press twice
    return _fail("interrupted; no file was left half-written", INTERRUPTED)


def _drop_output() -> None:
    """Give what is left in the buffer of stdout nowhere to go wrong."""
    with suppress(OSError):  # a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int = _MISUSE) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return status
