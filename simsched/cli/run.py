"""Running the application: every failure becomes one line and an exit status."""

import os
import sys

from simsched.errors import SimschedError

_FAILED = 2


def run(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    from simsched.cli.app import app

    try:
        status = app(args=arguments, prog_name="simsched", standalone_mode=False)
        sys.stdout.flush()
    except SimschedError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; no file was left half-written")
    except BrokenPipeError:  # the reader has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _fail("out of memory; try a smaller graph")
    except Exception as error:
        # typer raises the usage errors of the parser it is built on, under a name that varies with its version
        if hasattr(error, "format_message"):
            return _fail(error.format_message())
        if type(error).__name__ == "Abort":
            return _fail("interrupted; no file was left half-written")
        raise
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return _FAILED
