"""Traces that are not what they should be: one line that names the file, the place and the field."""

import copy
import gzip
import itertools
import json

import pytest
from kineto_traces import KinetoTrace, small_network

from simsched.base.errors import FormatError, UnknownNameError
from workloads.formats import kineto_text
from workloads.formats.kineto import read_kineto

VALID = small_network(n_steps=2, annotated=True).text()
DOCUMENT = json.loads(VALID)


def refusal(data, tmp_path, kind=FormatError):
    """What is said to a file of some bytes."""
    path = tmp_path / "trace.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(kind) as caught:
        read_kineto(path)
    message = str(caught.value)
    assert "trace.json" in message
    return message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON at line 1, column 1: Expecting value"),
        (b"{}", "expected an object with 'traceEvents'"),
        (b'{"traceEvents": [], "x": NaN}', "NaN is not a number that can be used"),
        (b'{"traceEvents": 3}', "field 'traceEvents' must be a list"),
        (b'{"traceEvents": [3]}', "traceEvents[0]: expected an object with a field 'ph'"),
        (b'{"traceEvents": [{"ph": "M"}, {}]}', "traceEvents[1]: expected an object with a field 'ph'"),
        (b'{"traceEvents": [], "more": [{"ph": "X"}]}', "there are events outside of the field 'traceEvents'"),
        (b'{"traceEvents": []}', "no operator and no kernel was recorded; profile with ProfilerActivity.CPU"),
        (b'{"traceEvents": [{"ph": "X", "cat": []}]}', "traceEvents[0]: a field has the wrong type"),
        (b'{"traceEvents": [{"x": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"traceEvents": [{"ts": ' + b"1" * 5000 + b"}]}", "Exceeds the limit"),
        (b"\xff\xfe{}", "not a text file (invalid start byte at byte 0)"),
        (b"\x1f\x8b", "the gzip file is truncated"),
        (gzip.compress(VALID.encode(), mtime=0)[:-50], "the gzip file is truncated"),
        (gzip.compress(VALID.encode(), mtime=0)[:-8] + b"\x00" * 8, "the gzip file is damaged"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_not_a_trace(data, message, tmp_path):
    assert message in refusal(data, tmp_path)


def test_cut_anywhere(tmp_path):
    """The message names the line at which the text ends, or one before it."""
    for end in range(0, len(VALID) - 2, 211):
        message = refusal(VALID[:end], tmp_path)
        line = int(message.split("at line ")[1].split(",")[0])
        assert 0 <= VALID[:end].count("\n") + 1 - line <= 12


def test_a_small_file_that_inflates_without_end(tmp_path, monkeypatch):
    """64 MiB of zeros in 64 KiB, 1000 times as much: refused before it is in memory (1 MiB is always allowed)."""
    monkeypatch.setattr(kineto_text, "_SMALL", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bytes(1 << 26), 9))
    most = 400 * path.stat().st_size
    assert most < 1 << 26
    with pytest.raises(FormatError, match=rf"bomb\.json\.gz: inflates to over {most} bytes, so it is not a trace"):
        kineto_text.read_trace(path)


@pytest.mark.parametrize("version", [2, "1", None, True])
def test_another_version(version, tmp_path):
    message = refusal(json.dumps(DOCUMENT | {"schemaVersion": version}), tmp_path)
    assert f"field 'schemaVersion' is {version!r}; this release reads 1" in message


def first(cat):
    return next(k for k, event in enumerate(DOCUMENT["traceEvents"]) if event["cat"] == cat)


def changed(cat, field, value):
    """The document with a field of the first event of a category replaced; `...` deletes it."""
    document = copy.deepcopy(DOCUMENT)
    place = document["traceEvents"][first(cat)]
    *way, last = field.split(".", 1)
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize("value", [..., "1", True, -1.0, 1e30, 10**400])
@pytest.mark.parametrize(("cat", "field"), [("cpu_op", "ts"), ("user_annotation", "dur"), ("kernel", "ts")])
def test_wrong_time(cat, field, value, tmp_path):
    message = refusal(changed(cat, field, value), tmp_path)
    assert f"traceEvents[{first(cat)}]: field {field!r} " in message


@pytest.mark.parametrize(
    ("cat", "field", "value", "message"),
    [
        ("cpu_op", "name", ..., "field 'name' is missing"),
        ("cpu_op", "name", 3, "field 'name' must be a text that is not empty, not 3"),
        ("cpu_op", "name", "\ud800", "field 'name' holds half of a character"),
        ("kernel", "args.correlation", ..., "field 'correlation' is missing"),
        ("kernel", "args.stream", -1, "field 'args.stream' must be a number below 2^31, not -1"),
        ("kernel", "args.grid", 3, "a field has the wrong type"),
        ("kernel", "args.grid", [0, 1, 1], "field 'args.grid' must be whole numbers of at least 1, not [0, 1, 1]"),
        ("kernel", "args.grid", [10**12] * 3, "kernel: blocks must be a whole number of at least 1 up to 2^53"),
        ("kernel", "args.shared memory", -1, "field 'args.shared memory' must be a whole number, not -1"),
    ],
)
def test_wrong_field(cat, field, value, message, tmp_path):
    assert message in refusal(changed(cat, field, value), tmp_path)


def test_wrong_bytes_of_a_copy(tmp_path):
    trace = KinetoTrace()
    trace.copy(trace.call("cudaMemcpyAsync", 5.0), 60.0, 1.0, nbytes="4 KB")
    assert "field 'args.bytes' must be a whole number, not '4 KB'" in refusal(trace.text(), tmp_path)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ([{}], "deviceProperties[0]: field 'id' is missing"),
        ([{"id": 0, "name": "A40", "numSms": "84"}], "deviceProperties[0]: field 'numSms' must be a whole number"),
        (
            [{"id": 0, "name": "A40", "numSms": 0}],
            "deviceProperties[0]: device 'A40': sms must be a whole number of at",
        ),
        ([{"id": 0, "name": "A40", "computeMajor": -8, "computeMinor": 6}], "compute_capability must be like '8.0'"),
    ],
)
def test_wrong_device(properties, message, tmp_path):
    assert message in refusal(json.dumps(DOCUMENT | {"deviceProperties": properties}), tmp_path)


def test_wrong_options(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(VALID)
    with pytest.raises(UnknownNameError, match="unknown level 'middle'; known are: top, leaf"):
        read_kineto(path, level="middle")
    with pytest.raises(UnknownNameError, match="unknown duration 'sum'; known are: busy, span"):
        read_kineto(path, duration="sum")
    for skip in (-1, 1.5, "1"):
        with pytest.raises(FormatError, match="skip must be a whole number of iterations, not"):
            read_kineto(path, skip=skip)
    with pytest.raises(FormatError, match="there are 2 iterations, of which skip=2 leaves none"):
        read_kineto(path, skip=2)
    with pytest.raises(FormatError, match="no operator ran within an iteration"):
        read_kineto(path, iteration="aten::flatten")


def test_captured_names_that_do_not_fit(tmp_path):
    trace = KinetoTrace()
    call = trace.call("cudaGraphLaunch", 10.0)
    trace.kernel(call, 300.0, 1.0)
    trace.kernel(call, 310.0, 1.0)
    with pytest.raises(FormatError, match="iteration 0 launches 2 graph nodes, but captured= names the operators of 3"):
        read_kineto(trace.write(tmp_path / "trace.json"), captured=["a", "b", "c"])
