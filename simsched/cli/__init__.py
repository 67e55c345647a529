"""The command line: ``simsched compare | schedule | simulate | whatif | report | ...``; see ``simsched --help``."""

import signal
import sys

from simsched.base.leaving import INTERRUPTED
from simsched.base.signals import one_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status: 0, or another after one ``error:`` line on stderr."""
    try:
        with one_interrupt():
            from simsched.cli.run import run

            status = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is done: the end of the process is not interrupted
    except KeyboardInterrupt:  # before the commands were there to be interrupted, or when they had ended
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("error: interrupted", file=sys.stderr)
        status = INTERRUPTED
    sys.exit(status)
