"""Every table that holds the simulator against an H100, from the committed measurements.

    python -m validation.h100 [--only networks,sharing] [--workers 2] [--json FILE] [--vidur FOLDER]

Sections: `solo` (operators alone), `networks` (networks by the commands of the README, with gains and ranges),
`orders` (time over batch and over devices), `published` (speedups and latencies of papers), `sharing` (kernels beside
each other, their times alone given), `peaks`, and `campaign` (calibrated predictions). No GPU is needed. Tables of
microsoft/vidur, which are not part of the project, are read from the folder of `--vidur`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

from simsched.base.errors import SimschedError
from simsched.base.io import dump_json, write_file
from validation import published
from validation.h100 import networks, orders
from validation.h100.campaign import campaign_section
from validation.h100.figures import Section, documents
from validation.h100.sharing import peaks, sharing
from validation.h100.solo import solo_section
from validation.h100.vidur import vidur_section


def network_sections(workers: int) -> list[Section]:
    """Return the tables of networks by the commands of the README."""
    rows = networks.predictions(workers)
    return [networks.one_stream_section(rows), networks.gain_section(rows), networks.range_section(rows)]


def order_sections(workers: int) -> list[Section]:
    """Return the tables of time over batch and over devices."""
    times = orders.all_times(workers)
    return [orders.batch_section(times), orders.device_section(times)]


def published_sections(workers: int) -> list[Section]:
    """Return the tables of published speedups and latencies."""
    return published.sections(*published.all_predicted(workers))


SECTIONS: Mapping[str, Callable[[int], list[Section]]] = {
    "solo": lambda _workers: [solo_section()],
    "networks": network_sections,
    "orders": order_sections,
    "published": published_sections,
    "sharing": lambda _workers: [sharing()],
    "peaks": lambda _workers: [peaks()],
    "campaign": lambda workers: [campaign_section(workers)],
}
"""Functions that return tables, by the name of their group; each takes a number of processes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"names separated by commas: {', '.join(SECTIONS)}")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--vidur", type=Path, help="folder with DEVICE-MODEL.mlp.csv.gz of microsoft/vidur")
    parser.add_argument("--json", type=Path, help="file for the figures and cases")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(SECTIONS)
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    sections: list[Section] = []
    try:
        for name in names:
            start = perf_counter()
            tables = SECTIONS[name](options.workers)
            for section in tables:
                print(*section.lines(), "", sep="\n", flush=True)
            sections += tables
            print(f"{name}: {perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if options.vidur:
            sections.append(vidur_section(options.vidur))
            print(*sections[-1].lines(), "", sep="\n")
        if options.json:
            write_file(options.json, dump_json(documents(sections)))
    except SimschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
