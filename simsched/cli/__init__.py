"""The command line: ``simsched compare | schedule | simulate | whatif | report | ...``; see ``simsched --help``."""

import signal
import sys

from simsched.base.leaving import INTERRUPTED
from simsched.base.signals import one_interrupt
from simsched.base.streams import fill_in_missing, write_to_stderr
from simsched.base.system import MIB, lack, require_memory, spare_openblas
from simsched.base.text import printable

__all__ = ["main"]

_ROOM = 112 * MIB  # bytes without which OpenBLAS ends the process as numpy is loaded


def main() -> None:
    """Run the command line and exit with its status: 0, or another after one ``error:`` line on stderr."""
    fill_in_missing()
    try:
        with one_interrupt():
            require_memory(_ROOM)
            spare_openblas()
            from simsched.cli.run import run

            status = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is done: the end of the process is not interrupted
    except KeyboardInterrupt:  # before the commands were there to be interrupted, or when they had ended
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        write_to_stderr("error: interrupted")
        status = INTERRUPTED
    except (MemoryError, ImportError, OSError, RuntimeError) as error:
        if (lacking := lack(error)) is None:
            raise
        write_to_stderr(f"error: simsched cannot be loaded: {printable(lacking)}")
        status = 2
    sys.exit(status)
