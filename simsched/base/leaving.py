"""Ctrl-C before the command line is there to hear it: the process ends at once, with its status and no traceback.

The package imports this module before anything else, and it imports only modules that exist when Python starts. In
processes that are no command it does nothing; in commands `simsched.base.signals.one_interrupt` takes over.
"""

import sys
from _signal import SIGINT, signal  # type: ignore[import-not-found]  # `signal` imports more
from posix import _exit, write

INTERRUPTED = 130
"""Exit status, as shells have it: 128 and the number of the signal."""


def is_command() -> bool:
    """Return whether this process is ``simsched ...`` or ``python -m simsched ...``, and not one that it started."""
    arguments = sys.argv[:1]
    typed = sys.orig_argv
    if arguments == ["-m"]:  # so it is until `python -m` has found the module
        return "simsched" in typed
    return arguments == typed[1:2] and arguments[0].endswith("/simsched")


def leave(*_: object) -> None:
    """End the process: nothing is under way yet, or any more."""
    try:
        write(2, b"error: interrupted\n")
    except OSError:  # no reader is left
        pass
    finally:
        _exit(INTERRUPTED)


if is_command():
    signal(SIGINT, leave)
