"""Injected faults: the doctor names each, and all else is measured."""

import pytest
from contacts import measured, ran

from hwbackend.contact.fake import FAULTS, FakeDevice
from hwbackend.contact.findings import FAIL, ODD, OK, findings
from hwbackend.contact.lines import read_record
from simsched.base.errors import UnknownNameError
from validation.contact import HEALTHY, NAMED, fault_options, item_keys, verdicts, without_low_clock


def doctor(record, **options):
    """Return the verdicts that are neither ok nor unknown, by matter; each says what it means."""
    rows = findings(record, FakeDevice(**options).cluster)
    assert all(row.meaning and row.seen for row in rows if row.verdict in (ODD, FAIL))
    return verdicts(record, **options)


def test_every_fault_has_a_name():
    assert sorted(NAMED) == sorted(FAULTS)


def test_a_healthy_device_is_ok(tmp_path):
    record = measured(tmp_path, ["doctor"], **HEALTHY)
    assert doctor(record, **HEALTHY) == {}
    verdicts = {row.matter: row.verdict for row in findings(record, FakeDevice(**HEALTHY).cluster)}
    assert verdicts.pop("other processes") == "-"  # the fake has no driver that reports them
    assert set(verdicts.values()) == {OK}


@pytest.mark.parametrize(
    "faults",
    [
        "tick+interleaved+one_copy_engine+slow_dram+no_nodes+slow_after_profiler",
        "ramp+no_overlap",
        "throttle+empty_session",
        "exception",
    ],
)
def test_the_doctor_names_faults(tmp_path, faults):
    """All that a device has, and nothing else but their consequences; all other items of the section are there.

    ``python -m validation.contact faults`` tries each alone.
    """
    options = fault_options(faults)
    record = measured(tmp_path, ["doctor"], **options)
    named = doctor(record, **options)
    expected = {matter: verdict for fault in faults.split("+") for matter, verdict in NAMED[fault].items()}
    assert without_low_clock(faults, named) == expected
    wanted = set(item_keys("small", ["doctor"]))
    assert wanted - set(record.items) == ({"doctor/overlap"} if faults == "exception" else set())


def test_unknown_faults_are_refused():
    with pytest.raises(UnknownNameError, match="unknown fault 'x'"):
        FakeDevice(fault="tick+x")


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
    assert set(item_keys("small", ["doctor"])) - set(record.items) == {"doctor/overlap"}
