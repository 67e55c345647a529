"""Long runs: ``python -m validation.inductor {kernels,races,orders,overhead,gains} [COUNT] [SECONDS]``.

`kernels` compares what is launched with plain Inductor, `races` checks random plans on four streams and ones that are
broken on purpose (both need Triton), `orders` runs C++ kernels in random legal orders, `overhead` times calls
of what the backend declines beside Inductor's. Only `gains` needs a GPU: six networks in fp16, at batch 1 and 16.
"""

import sys
import time
from collections.abc import Callable, Iterator

from validation.inductor.campaigns import compare_kernels, count_races, run_orders
from validation.inductor.gains import compare_gains
from validation.inductor.overhead import compare_calls

Campaign = Callable[[int, Callable[[], bool]], Iterator[tuple[str, bool]]]
"""From a count, and whether to go on, to lines and whether they hold."""


def main(arguments: list[str]) -> int:
    """Run a campaign and return 1 where it fails."""
    names: dict[str, Campaign] = {
        "kernels": compare_kernels,
        "races": count_races,
        "orders": run_orders,
        "overhead": compare_calls,
        "gains": compare_gains,
    }
    if not arguments or arguments[0] not in names:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    count = int(arguments[1]) if len(arguments) > 1 else 10
    end = time.monotonic() + (float(arguments[2]) if len(arguments) > 2 else float("inf"))
    good = True
    for line, holds in names[arguments[0]](count, lambda: time.monotonic() < end):
        good = good and holds
        sys.stdout.write(f"{'ok  ' if holds else 'FAIL'} {line}\n")
        sys.stdout.flush()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
