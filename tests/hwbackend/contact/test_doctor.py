"""Injected faults: the doctor names each, and all else is measured."""

import pytest
from contacts import measured, ran

from hwbackend.contact.fake import FAULTS, FakeDevice
from hwbackend.contact.findings import FAIL, ODD, OK, findings
from hwbackend.contact.lines import read_record
from hwbackend.contact.sections import SIZES, all_items

HEALTHY = {"seed": 3, "interleave": 0.0, "drift": 0.001}
NAMED = {
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
"""Faults, and the matters that the doctor then calls odd or failed."""
LOW_CLOCK = {"fp32 products", "fp16 products"}
"""Matters that a low clock makes odd, too."""


def doctor(record, **options):
    """Return the verdicts that are neither ok nor unknown, by matter; each says what it means."""
    rows = [row for row in findings(record, FakeDevice(**options).cluster) if row.verdict in (ODD, FAIL)]
    assert all(row.meaning and row.seen for row in rows)
    return {row.matter: row.verdict for row in rows}


def test_every_fault_has_a_name():
    assert sorted(NAMED) == sorted(FAULTS)


def test_a_healthy_device_is_ok(tmp_path):
    record = measured(tmp_path, ["doctor"], **HEALTHY)
    assert doctor(record, **HEALTHY) == {}
    verdicts = {row.matter: row.verdict for row in findings(record, FakeDevice(**HEALTHY).cluster)}
    assert verdicts.pop("other processes") == "-"  # the fake has no driver that reports them
    assert set(verdicts.values()) == {OK}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "hang"])
def test_the_doctor_names_a_fault(tmp_path, fault):
    """And nothing else but its consequences; all other items of the section are there."""
    options = HEALTHY | {"fault": fault}
    for name in FAULTS[fault].truth:
        options.pop(name, None)
    record = measured(tmp_path, ["doctor"], **options)
    named = doctor(record, **options)
    consequences = LOW_CLOCK if fault in ("ramp", "throttle") else set()
    assert {matter: verdict for matter, verdict in named.items() if matter not in consequences} == NAMED[fault]
    wanted = {item.key for item in all_items(FakeDevice(**HEALTHY).cluster, SIZES["small"])["doctor"]}
    assert wanted - set(record.items) == ({"doctor/overlap"} if fault == "exception" else set())


def test_a_call_that_hangs_costs_its_item_alone(tmp_path):
    """Its process is ended after a second without an answer and another one goes on; the page names the item."""
    options = [f"--backend-option={name}={value}" for name, value in (HEALTHY | {"fault": "hang"}).items()]
    status, printed, errors = ran(
        "run", tmp_path, "--backend=fake", *options, "--size=small", "--seconds=16", "--patience=8"
    )
    assert (status, errors) == (0, "")
    record = read_record(tmp_path)
    assert record.reason("doctor/overlap") == "it hung: no answer for 8 s"
    assert "doctor: fail, two streams overlap: it hung" in printed
    assert doctor(record, **HEALTHY) == NAMED["hang"]
    wanted = {item.key for item in all_items(FakeDevice(**HEALTHY).cluster, SIZES["small"])["doctor"]}
    assert wanted - set(record.items) == {"doctor/overlap"}
