"""Contacts with fake devices whose truth is known: ``python -m validation.contact truths|faults|cuts|kills|executor``.

Prints a table for each trial and ends with 1 if one does not hold:

- truths: every parameter of 20 drawn devices is found again within 3 %;
- faults: the doctor names each of twelve faults and nothing else, and all other items are measured;
- cuts: 30, 60, 120 and 480 s on the clock of the fake cut the list of items from the bottom;
- kills: of a contact that is killed 20 times no item is lost or measured twice;
- executor: 500 random programs for each driver, the tests of which ``pytest`` runs.

``all`` tries everything.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final
from xml.etree import ElementTree

from hwbackend.contact.fake import FakeDevice
from hwbackend.contact.fake.faults import combine_faults
from hwbackend.contact.findings import FAIL, ODD, findings
from hwbackend.contact.fitted import fit_contact
from hwbackend.contact.lines import NAME, ContactRecord, appending, read_record
from hwbackend.contact.sections import SECTIONS, SIZES, all_items
from hwbackend.contact.worker import measure_section
from validation.evidence import table

WITHIN: Final = 0.03
"""Largest error of a parameter that is found again."""
DEVICE_SECTIONS: Final = ("doctor", "host", "dispatch", "saturation", "sharing", "launches", "copies")
"""Sections that say what the parameters of a device are."""
HEALTHY: Final[Mapping[str, float]] = MappingProxyType({"seed": 3, "interleave": 0.0, "drift": 0.001})
"""Options of a fake device that no finding calls odd."""
NAMED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "tick": {"timer tick": ODD},
        "ramp": {"clock after a pause": ODD},
        "throttle": {"throttling": FAIL},
        "no_overlap": {"two streams overlap": FAIL},
        "interleaved": {"leftover dispatch": ODD},
        "one_copy_engine": {"copy engines": ODD},
        "slow_dram": {"DRAM bandwidth": ODD},
        "empty_session": {"profiler": FAIL},
        "no_nodes": {"profiler": ODD},
        "slow_after_profiler": {"launches after the profiler": ODD},
        "hang": {"two streams overlap": FAIL, "items": FAIL},
        "exception": {"two streams overlap": FAIL, "items": FAIL},
    }
)
"""Faults, and the matters that the doctor then calls odd or failed."""

_TRUTHS: Final = 20
_APART: Final = 80.0  # s between sections, so that a drift shows
_CUTS: Final = (30, 60, 120, 480)
_KILLS: Final = 20
_PROMISES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "synthetic: what was recorded, to the last bit": "tests/hwbackend/synthetic/test_synthetic_frozen.py",
        "CuPy and PyTorch: the calls of the program, in a legal order": "tests/hwbackend/executor/test_issue.py",
        "nodes of one capture: the same outputs in every order": "tests/hwbackend/torch_driver/test_donor.py",
    }
)
_LOW_CLOCK: Final = ("fp32 products", "fp16 products")
_FAKE: Final = ("--backend=fake", "--backend-option=seed=5")
_ROOT: Final = Path(__file__).resolve().parent.parent


def measure(
    folder: str | Path,
    sections: Sequence[str] = tuple(SECTIONS),
    *,
    size: str = "small",
    apart: float = 0.0,
    **options: Any,
) -> ContactRecord:
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


def true_parameters(**options: Any) -> dict[str, float]:
    """Return the parameters of a fake device; two copy engines or more are seen as two."""
    parameters = FakeDevice(**options).truth.parameters()
    return parameters | {"copy_engines": min(2.0, parameters["copy_engines"])}


def parameter_errors(record: ContactRecord, **options: Any) -> dict[str, float]:
    """Return for each parameter the relative error of the fit; of a true 0 the fit in units of a third; inf if missing.

    A parameter whose truth is 0 may become a hundredth, which counts as 3 %.
    """
    values = fit_contact(record).values()
    return {
        name: abs(values.get(name, float("inf")) - true) / (true or 1.0 / 3.0)
        for name, true in true_parameters(**options).items()
    }


def verdicts(record: ContactRecord, **options: Any) -> dict[str, str]:
    """Return the verdicts that are neither ok nor unknown, by matter."""
    rows = findings(record, FakeDevice(**options).cluster)
    return {row.matter: row.verdict for row in rows if row.verdict in (ODD, FAIL)}


def fault_options(fault: str) -> dict[str, Any]:
    """Return the options of a healthy device with a fault or several, which have the last word."""
    truth = combine_faults(fault).truth
    return {name: value for name, value in HEALTHY.items() if name not in truth} | {"fault": fault}


def without_low_clock(fault: str, named: Mapping[str, str]) -> dict[str, str]:
    """Return verdicts without those that only follow from a low clock, where a fault is one."""
    if not {"ramp", "throttle"} & set(fault.split("+")):
        return dict(named)
    return {matter: verdict for matter, verdict in named.items() if matter not in _LOW_CLOCK}


def item_keys(size: str, sections: Sequence[str] = tuple(SECTIONS)) -> list[str]:
    """Return the keys of all items, in the order of their worth."""
    items = all_items(FakeDevice().cluster, SIZES[size])
    return [item.key for section in sections for item in items[section]]


def measured_keys(folder: str | Path) -> list[str]:
    """Return the keys as the file has them, each line by itself."""
    rows = map(json.loads, (Path(folder) / NAME).read_text().splitlines())
    return [row["key"] for row in rows if "key" in row]


def command(*words: object, **options: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the words and the options of `subprocess.run` of a contact's command."""
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "tests")])
    return [sys.executable, "-m", "hwbackend.contact", *map(str, words)], {
        "env": os.environ | {"PYTHONPATH": path},
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **options,
    }


def run(*words: object) -> tuple[int, str, str]:
    """Run a command of a contact; return its status, its output and its errors."""
    line, options = command(*words)
    done = subprocess.run(line, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def kill_and_resume(folder: str | Path, moments: Sequence[float], rng: random.Random) -> list[str]:
    """Kill runs in a folder after so many s each, then let one end; return the keys in the end.

    A kill ends the run alone or, as often, the process of its section, too.
    """
    for moment in moments:
        line, options = command("run", folder, *_FAKE, "--size=small", start_new_session=True)
        running = subprocess.Popen(line, **options)
        time.sleep(moment)
        if rng.random() < 0.5:
            os.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()
        running.communicate()
    status, _, errors = run("run", folder, *_FAKE, "--size=small")
    if (status, errors) != (0, ""):
        raise RuntimeError(f"the last run ends with {status}: {errors}")
    return measured_keys(folder)


def tried_from_the_top(record: ContactRecord, keys: Sequence[str]) -> int | None:
    """Return how many items were tried if they are the first of the list, else None."""
    tried = [key for key in keys if key in record.items or record.is_unsupported(key)]
    return len(tried) if tried == list(keys[: len(tried)]) else None


def truths(folder: Path) -> Iterator[str]:
    """Yield the largest error of each parameter over drawn devices, and why the trial does not hold."""
    worst: dict[str, tuple[float, int]] = {}
    for seed in range(_TRUTHS):
        record = measure(folder / f"truth-{seed}", DEVICE_SECTIONS, apart=_APART, seed=seed)
        for name, error in parameter_errors(record, seed=seed).items():
            worst[name] = max(worst.get(name, (0.0, seed)), (error, seed))
    rows = [(name, f"{100 * error:.2f} %", seed) for name, (error, seed) in worst.items()]
    yield from table(("parameter", "largest error", "seed"), rows)
    for name, (error, seed) in worst.items():
        if error > WITHIN:
            yield f"FAIL {name} of seed {seed} is {100 * error:.2f} % off"


def faults(folder: Path) -> Iterator[str]:
    """Yield for each fault what the doctor says, and why the trial does not hold."""
    rows, failures = [], []
    for fault, expected in NAMED.items():
        options = fault_options(fault)
        at = folder / f"fault-{fault}"
        if fault == "hang":
            words = [f"--backend-option={name}={value}" for name, value in options.items()]
            status, _, errors = run("run", at, "--backend=fake", *words, "--size=small", "--seconds=16", "--patience=8")
            if (status, errors) != (0, ""):
                failures.append(f"FAIL {fault}: status {status}: {errors}")
            record = read_record(at)
        else:
            record = measure(at, ["doctor"], **options)
        named = verdicts(record, **options)
        others = without_low_clock(fault, named)
        lost = sorted(set(item_keys("small", ["doctor"])) - set(record.items))
        rows.append((fault, ", ".join(f"{matter}: {verdict}" for matter, verdict in named.items()), ", ".join(lost)))
        if others != expected or lost != (["doctor/overlap"] if fault in ("hang", "exception") else []):
            failures.append(f"FAIL {fault}: expected {dict(expected)}")
    yield from table(("fault", "the doctor", "items lost"), rows)
    yield from failures


def cuts(folder: Path) -> Iterator[str]:
    """Yield what is measured in so many s, and why the trial does not hold."""
    keys = item_keys("full")
    rows, failures = [], []
    for seconds in _CUTS:
        at = folder / f"cut-{seconds}"
        status, _, errors = run("run", at, *_FAKE, f"--seconds={seconds}")
        record = read_record(at)
        tried = tried_from_the_top(record, keys)
        twice = len(measured_keys(at)) - len(set(measured_keys(at)))
        rows.append((seconds, tried, len(keys), twice, keys[(tried or 1) - 1]))
        whole = tried == len(keys)
        if (status, errors) != (0, "") or tried is None or twice or whole != (seconds == _CUTS[-1]):
            failures.append(f"FAIL {seconds} s: status {status} {errors}")
    yield from table(("seconds", "items tried", "of", "twice", "last item"), rows)
    yield from failures


def kills(folder: Path) -> Iterator[str]:
    """Yield what is measured after kills at random moments, and why the trial does not hold."""
    rng = random.Random(1)
    run("run", folder / "whole", *_FAKE, "--size=small")
    keys = kill_and_resume(folder / "killed", [rng.uniform(0.5, 8.0) for _ in range(_KILLS)], rng)
    wanted = measured_keys(folder / "whole")
    lost, twice = sorted(set(wanted) - set(keys)), len(keys) - len(set(keys))
    yield from table(("kills", "items", "lost", "twice"), [(_KILLS, len(keys), len(lost), twice)])
    if lost or twice or set(keys) != set(wanted):
        yield f"FAIL lost {lost}, {twice} twice"


def executor(folder: Path) -> Iterator[str]:
    """Yield for each driver whether 500 random programs ran as they should, and why the trial does not hold."""
    rows, failures = [], []
    for promise, name in _PROMISES.items():
        report = folder / f"{Path(name).stem}.xml"
        words = ["-n0", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", name]
        line, options = command()
        done = subprocess.run([line[0], "-m", "pytest", *words], cwd=_ROOT, check=False, **options)
        counts: Mapping[str, str] = {}
        if report.exists():
            counts = ElementTree.parse(report).getroot()[0].attrib
        rows.append((promise, counts.get("tests", "0"), counts.get("failures", "?"), name))
        if done.returncode:
            failures.append(f"FAIL {promise}: pytest ends with {done.returncode}: {done.stdout[-500:]}")
    yield from table(("500 random programs", "tests", "failed", "in"), rows)
    yield from failures


TRIALS: Final[Mapping[str, Callable[[Path], Iterator[str]]]] = MappingProxyType(
    {"truths": truths, "faults": faults, "cuts": cuts, "kills": kills, "executor": executor}
)
"""Trials by name."""


def main(words: Sequence[str] | None = None) -> int:
    """Run trials; return 1 if one does not hold, 2 if there is no such trial."""
    given = list(sys.argv[1:] if words is None else words)
    names = list(TRIALS) if given == ["all"] else given
    unknown = [name for name in names if name not in TRIALS]
    if unknown or not names:
        print(f"error: name trials of {', '.join(TRIALS)}, or all, not {' '.join(given) or 'none'}", file=sys.stderr)
        return 2
    failed = False
    for name in names:
        begun = time.monotonic()
        with TemporaryDirectory() as folder:
            for line in TRIALS[name](Path(folder)):
                failed = failed or line.startswith("FAIL")
                print(line, flush=True)
        print(f"{name}: {time.monotonic() - begun:.0f} s\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
