"""The command line: ``simsched compare | schedule | simulate | whatif | report | ...``; see ``simsched --help``."""

import signal
import sys

from simsched.base.signals import one_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0, or with one ``error:`` line on stderr 2, or 70 for a defect of simsched."""
    try:
        with one_interrupt():
            from simsched.cli.run import run

            status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the commands were there to be interrupted
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("error: interrupted", file=sys.stderr)
        status = 2
    sys.exit(status)
