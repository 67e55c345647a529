"""Files that are not what they should be, and files that are written whole or not at all."""

import copy
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small import made, operators, placements

from simsched.base.errors import FileError, FormatError, ProgramError, SimschedError
from simsched.base.io import dump_json, parse_json, read_bytes, read_json, read_text, reading_once, write_file
from simsched.model import Cluster, Kernel, Operator, OpGraph, Program, Schedule

ROOT = Path(__file__).resolve().parent.parent
A = Operator("a", time=2.0, kernels=(Kernel(3, share=0.5), Kernel(4, share=0.5)))
GRAPH = made([A, *operators("b=1 c=1")], "ab=8 ac=8:1.5")
SCHEDULE = Schedule(GRAPH, placements("a c/1 b@1"))
PROGRAM = SCHEDULE.lower(Cluster.preset("a100", 2)).to_dict()


def changed(document, path, value):
    """A copy of a document with the value at a path replaced; `...` deletes it."""
    result = copy.deepcopy(document)
    *way, last = path
    place = result
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return result


def refusal(reader, document, kind=SimschedError):
    """What the reader says to a document, read as text."""
    with pytest.raises(kind) as caught:
        reader.from_dict(parse_json(json.dumps(document)), "file.json")
    assert "file.json" in str(caught.value)
    return str(caught.value)


# JSON --------------------------------------------------------------------------------------------


def test_files_that_hold_no_json(tmp_path):
    """The message names the file, and the line: that of the first, which is cut in the middle of its fourth."""
    path = tmp_path / "bad.json"
    lines = dump_json(GRAPH.to_dict()).splitlines()
    cut = "\n".join([*lines[:3], lines[3][:5]]).encode()
    for content, message in ((cut, r"not valid JSON at line 4, column \d+"), (b"\x08\x07\xff\x00", "not a text file")):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=rf"bad\.json: {message}"):
            OpGraph.load(str(path))
    path.write_text('{"name": "\\ud83d\\ude00"}', encoding="utf-8-sig")  # a mark of its bytes' order is passed over
    assert read_json(path) == {"name": "\U0001f600"}  # one character, in two escapes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "not valid JSON at line 1") for text in ("", "{}}", "{'a': 1}", '{"a": 1,}', "// a\n{}", "\ufeff{}")),
        *(
            (f'{{"time": {constant}}}', f"g: {constant} is not a number")
            for constant in ("NaN", "Infinity", "-Infinity")
        ),
        ('{"name": "a", "time": 1, "time": 2}', "field 'time' stands twice in one object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" * 5000, "g: "),
        ("[1.7e308, -12.5e+999]", r"^g: -12\.5e\+999 is not a number that can be used$"),
        ('"\\ud800"', "surrogates not allowed"),
    ],
)
def test_texts_that_are_no_json(text, message):
    with pytest.raises(FormatError, match=message):
        parse_json(text, "g")


@pytest.mark.parametrize(("path", "why"), [("nowhere.json", "No such file"), ("", "Is a directory"), ("a\0b", "")])
def test_files_that_cannot_be_read(tmp_path, path, why):
    with pytest.raises(FileError, match=f"cannot read .*{why}"):
        read_json(f"{tmp_path}/{path}")


# Places in documents ------------------------------------------------------------------------------


def first(action):
    """Path of the first instruction of a kind in the program document."""
    threads = enumerate(PROGRAM["threads"])
    return next(["threads", t, i] for t, thread in threads for i, row in enumerate(thread) if row["do"] == action)


LAUNCH, RECORD, WAIT, COPY = map(first, ("launch", "record", "wait", "copy"))


CANNOT_BE = {
    OpGraph: [
        (["operators", 1, "name"], "a", "operator 'a' stands twice"),
        (["operators", 0, "kernels", 0, "share"], 0.25, "operators[0]: operator 'a': the shares of its"),
        (["operators", 0, "kernels", 0, "blocks"], 10**30, "operators[0].kernels[0]: kernel: blocks must be"),
    ],
    Schedule: [
        (["placements", 1, "op"], "x", "placement of 'x' names no operator of graph 'graph'"),
        (["graph", "operators", 1, "time"], -1, "graph.operators[1]: operator 'b': time must be finite"),
    ],
    Program: [
        ([*LAUNCH, "do"], "run", "threads[0][0]: run: do must be one of launch, record, wait, copy, barrier, sync"),
        ([*LAUNCH, "device"], "gpu7", "threads[0][0]: unknown device 'gpu7'; known are: gpu0, gpu1"),
        ([*LAUNCH, "stream"], ..., "threads[0][0]: launch: stream is missing"),
        ([*LAUNCH, "op"], "x", "threads[0][0]: 'x' names no operator of graph 'graph'"),
        ([*LAUNCH, "kernel"], 2, "threads[0][0]: operator 'a' has no kernel 2"),
        ([*LAUNCH, "kernel"], 1, "launch of 'a' stands"),
        ([*LAUNCH, "priority"], 10**30, "priority"),
        ([*RECORD, "event"], 99, "there is no event 99: the program has"),
        ([*RECORD, "event"], 10**30, "event"),
        ([*COPY, "to"], "gpu0", "a copy goes to another device"),
        (["execution"], "graph", "a captured graph has one thread, not 2"),
        (["devices"], [], "there are no devices"),
        (["devices"], ["gpu0", "gpu1", "gpu1"], "gpu1"),
        (["events"], 0, "there is no event"),
        (["events"], 2**24, "events"),  # a file of a few bytes must not make the reader set aside memory for them
        (["threads"], [], "stands nowhere"),
        (["graph", "operators", 0, "time"], -1, "operators[0]"),
    ],
}


@pytest.mark.parametrize(
    ("reader", "path", "value", "where"), [(reader, *row) for reader, rows in CANNOT_BE.items() for row in rows]
)
def test_what_cannot_be_is_named_with_its_place(reader, path, value, where):
    document = {OpGraph: GRAPH.to_dict(), Schedule: SCHEDULE.to_dict(), Program: PROGRAM}[reader]
    assert where in refusal(reader, changed(document, path, value))


def on_event(do, **more):
    return {"do": do, "device": "gpu0", "event": 0} | more


RUN_A, RUN_B = ({"do": "launch", "device": "gpu0", "stream": 0, "op": name} for name in "ab")
RECORDED, WAITED, SYNC = on_event("record", stream=0), on_event("wait", stream=1), on_event("sync")


@pytest.mark.parametrize(
    ("threads", "execution", "message"),
    [
        ([[RUN_A, RECORDED, WAITED, RUN_B]], "graph", None),
        ([[RUN_A, RECORDED, SYNC, RUN_B]], "events", None),
        ([[WAITED, RUN_A], [RUN_B, RECORDED]], "events", None),  # the record may be issued in time: only a run tells
        ([[RUN_A, RECORDED, RECORDED, RUN_B]], "events", "event 0 is recorded twice"),
        ([[RUN_A, WAITED, RECORDED, RUN_B]], "events", "event 0 is waited for before the same thread records it"),
        ([[RUN_A, SYNC, RECORDED, RUN_B]], "events", "event 0 is waited for before the same thread records it"),
        ([[RUN_A]], "events", "launch of 'b' stands nowhere"),
        ([[RUN_A, RUN_B, RUN_A]], "events", "launch of 'a' stands twice"),
        # CUDA cannot capture a host that waits; passing over the instruction would be another program
        ([[RUN_A, RECORDED, SYNC, RUN_B]], "graph", ""),
        ([[RUN_A, RECORDED, {"do": "barrier", "device": "gpu0"}, RUN_B]], "graph", ""),
    ],
)
def test_threads_that_can_be_and_cannot(threads, execution, message):
    graph, devices = made("a=1 b=1").to_dict(), ["gpu0"]
    program = PROGRAM | {"execution": execution, "devices": devices, "events": 1, "graph": graph, "threads": threads}
    if message is None:
        assert Program.from_dict(program).n_events == 1
    else:
        assert message in refusal(Program, program, ProgramError)


def test_kernels_of_an_operator_in_order():
    *thread, row = LAUNCH
    document = changed(changed(PROGRAM, [*LAUNCH, "kernel"], 1), [*thread, row + 1, "kernel"], 0)
    assert "kernels of 'a' are launched out of order" in refusal(Program, document, ProgramError)


# Writing -----------------------------------------------------------------------------------------


def test_write_and_read(tmp_path):
    """The mode is that of any program's files, 0666 without what the umask takes, not the 0600 of a temporary one."""
    path = tmp_path / "x.json"
    before = os.umask(0o027)
    try:
        write_file(path, dump_json({"a": [1.5, None, "ä"]}))
    finally:
        os.umask(before)
    assert path.read_text().endswith("}\n")
    assert read_json(path) == {"a": [1.5, None, "ä"]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_file(str(path), b"{}")
    assert path.read_bytes() == b"{}"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("path", "why"),
    [("nowhere/x", "No such file or directory"), ("", "it is a folder"), ("old/x", "Not a directory"), ("a\0b", "")],
)
def test_files_that_cannot_be_written(tmp_path, path, why):
    (tmp_path / "old").write_text("old")
    with pytest.raises(FileError, match=f"cannot write .*{why}"):
        write_file(f"{tmp_path}/{path}", "text")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_write_into_a_folder_that_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(FileError, match=r"cannot write .*: Permission denied"):
            write_file(tmp_path / "x", "text")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("raised", "caught"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left on device"), FileError)],
)
def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch, step, raised, caught):
    path = tmp_path / "x.json"
    path.write_text("old")

    def interrupt(*_, **__):
        raise raised

    monkeypatch.setattr(os, step, interrupt)
    with pytest.raises(caught) as error:
        write_file(path, "new")
    if caught is FileError:
        assert str(error.value) == f"cannot write {path}: No space left on device"
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_a_link_still_leads_to_the_file(tmp_path):
    """Writing through a symbolic link writes the file it names; the link stays a link."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_special_file_is_written_to_and_not_replaced(tmp_path):
    """A pipe (as ``/dev/stdout`` or ``/dev/null`` may be) stays what it is, and gets the data."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(path, "text")
        assert stat.S_ISFIFO(path.stat().st_mode)
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)


def test_a_pipe_is_read_once(tmp_path):
    """Its first bytes and the whole of it are of one reading; a file is read anew."""
    path, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(path)
    file.write_text("old")
    with ThreadPoolExecutor() as pool, reading_once():
        pool.submit(path.write_text, "text")
        assert (read_bytes(path, 2), read_bytes(path), read_text(path)) == (b"te", b"text", "text")
        assert read_bytes(file) == b"old"
        file.write_text("new")
        assert read_bytes(file) == b"new"
    with ThreadPoolExecutor() as pool:
        pool.submit(path.write_text, "more")
        assert read_bytes(path) == b"more"


def test_the_temporary_file_lies_beside(tmp_path, monkeypatch):
    """On the same file system, so that renaming it is one step."""
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(Path(a).parent), replace(a, b)))
    write_file(tmp_path / "x", "text")
    assert seen == [tmp_path]


def test_what_killed_writers_left_is_cleared_and_what_living_ones_write_is_not(tmp_path):
    """A process waits within `fsync`: while it lives its file stays; the next writer clears what a killed one left."""
    path = tmp_path / "study.json"
    code = (
        "import os, sys, time\n"
        "from simsched.base.io import write_file\n"
        "os.fsync = lambda _: (print('writing', flush=True), time.sleep(100))\n"
        "write_file(sys.argv[1], 'half')\n"
    )
    others = [tmp_path / name for name in (".study.json.old", ".study.jsonx.0123abcd", ".x.study.json.0123abcd")]
    for other in others:
        other.write_text("mine")
    (tmp_path / ".study.json.00000000").mkdir()
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout.readline() == "writing\n"
        (left,) = (each for each in tmp_path.glob(".study.json.[0-9a-f]*") if each.is_file())
        write_file(path, "whole")
        assert left.exists()
        writer.kill()
    write_file(path, "whole again")
    assert sorted(tmp_path.iterdir()) == sorted([path, *others, tmp_path / ".study.json.00000000"])
    assert path.read_text() == "whole again"


def test_a_temporary_file_that_was_taken_for_left_behind_is_made_anew(tmp_path, monkeypatch):
    """Another process removes it between its making and its lock."""
    taken = []

    def flock(file, _):
        if not taken:
            taken.append(Path(file.name))
            taken[0].unlink()

    monkeypatch.setattr("fcntl.flock", flock)
    write_file(tmp_path / "x", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert taken
