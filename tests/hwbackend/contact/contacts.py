"""Contacts with fake devices, measured in this process or by the command."""

import os
import subprocess
import sys
from pathlib import Path

from hwbackend.contact.fake import FakeDevice
from hwbackend.contact.lines import appending, read_record
from hwbackend.contact.sections import SECTIONS
from hwbackend.contact.worker import measure_section

ROOT = Path(__file__).resolve().parents[3]
DEVICE = ("doctor", "host", "dispatch", "saturation", "sharing", "copies")
"""Sections that say what the parameters of the device are."""


def measured(folder, sections=tuple(SECTIONS), *, size="small", apart=0.0, **options):
    """Measure sections of a fake device in this process, so many s apart; return the record."""
    with appending(folder) as lines:
        lines.append(
            contact={"backend": "fake", "options": options, "size": size},
            date="2026-11-28T00:00:00Z",
            environment={"commit": "0"},
        )
    begun = 0.0
    for section in sections:
        measure_section(str(folder), section, "fake", options, size, seconds=1e6, begun=begun)
        line = read_record(folder).sections[-1]
        begun = line["at"] + line["took"] + apart
    return read_record(folder)


def truth(**options):
    """Return the parameters of a fake device; two engines or more are seen as two."""
    found = FakeDevice(**options).truth.parameters()
    return found | {"copy_engines": min(2.0, found["copy_engines"])}


def command(*words, **options):
    """Return what starts ``python -m hwbackend.contact``."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return [sys.executable, "-m", "hwbackend.contact", *map(str, words)], {
        "env": os.environ | {"PYTHONPATH": path},
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **options,
    }


def ran(*words):
    """Run a command of a contact; return its status, its output and its errors."""
    words, options = command(*words)
    done = subprocess.run(words, **options)
    return done.returncode, done.stdout, done.stderr
