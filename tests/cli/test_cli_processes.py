"""The command as a process: interrupts, pipes, terminals, closed and full outputs."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

SIMSCHED = [sys.executable, "-c", "from simsched.cli import main; main()"]
SMALL = "random:layered,n_ops=12,n_layers=4"
LARGE = "random:layered,n_ops=4000,n_layers=60"  # several seconds: an interrupt comes in time


def call(*arguments, folder, **options):
    return subprocess.run(
        [*SIMSCHED, *arguments], cwd=folder, capture_output=True, text=True, timeout=100, check=False, **options
    )


def test_a_pipe_gets_text_alone(tmp_path):
    done = call("compare", SMALL, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("layered-12 on a100")
    assert "…" not in done.stdout


def given(arguments, folder, text):
    """Run a command with a text on stdin; return the status, what it printed and the error."""
    done = call(*arguments, folder=folder, input=text)
    return done.returncode, done.stdout, done.stderr


def test_a_graph_into_a_pipe(tmp_path):
    """Ours unless another format is named; what is said of it goes to stderr."""
    done = call("convert", SMALL, "/dev/stdout", folder=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["format"]) == (0, "simsched.graph")
    assert done.stderr.endswith("written to /dev/stdout (simsched)\n")
    done = call("convert", SMALL, "/dev/stdout", "--to", "dot", folder=tmp_path)
    assert done.stdout.startswith("digraph")
    with (tmp_path / "g.json").open("wb") as out:
        subprocess.run([*SIMSCHED, "convert", SMALL, "/dev/stdout"], stdout=out, timeout=100, check=True)
    assert json.loads((tmp_path / "g.json").read_text())["format"] == "simsched.graph"


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_stdin(tmp_path, path):
    """Its format is told by what it holds: a graph in JSON or DOT, a schedule."""
    call("convert", SMALL, "g.dot", folder=tmp_path)
    plan = call("schedule", SMALL, folder=tmp_path).stdout
    for command, text in (("show", (tmp_path / "g.dot").read_text()), ("simulate", plan), ("explain", plan)):
        status, out, err = given([command, path], tmp_path, text)
        assert (status, err) == (0, "")
        assert out
    status, out, err = given(["whatif", path, "--set", "gpus=2"], tmp_path, json.dumps(json.loads(plan)["graph"]))
    assert (status, err) == (0, "")
    status, out, err = given(["show", path], tmp_path, "1 2 3")
    assert (status, out) == (2, "")
    assert err.startswith("error: /dev/stdin: its first bytes tell no format; ")


@pytest.mark.parametrize("name", ["p.json", "p"])
@pytest.mark.parametrize(
    "arguments", [["show"], ["report", "-o", "r.html"], ["compare", "--schedulers", "lios"]], ids=str
)
def test_a_fifo_is_read_once(tmp_path, arguments, name):
    call("convert", SMALL, "g.json", folder=tmp_path)
    os.mkfifo(tmp_path / name)
    with subprocess.Popen(["sh", "-c", f"exec cat g.json > {name}"], cwd=tmp_path):
        done = call(*arguments, name, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "layered-12" in done.stdout


def test_python_warnings_stay_away(tmp_path):
    """Operators so long that numpy's arithmetic overflows: still not a word on stderr but the error's."""
    operators = [{"name": "a", "time": 1e308, "utilization": 0.5}, {"name": "b", "time": 1e308}]
    data = {"format": "simsched.graph", "version": 1, "operators": operators, "edges": []}
    (tmp_path / "g.json").write_text(json.dumps(data))
    done = call("simulate", "g.json", folder=tmp_path)
    assert "Warning" not in done.stderr
    assert done.stderr.count("\n") == (1 if done.returncode else 0)


@pytest.mark.parametrize(
    "arguments",
    [["list", "gpus"], ["--help"], ["schedule", SMALL], ["compare", SMALL, "--perfetto", "t.json"]],
    ids=str,
)
def test_a_reader_that_goes_away(tmp_path, arguments):
    """stdout is a pipe that nobody reads: as with ``| head``, no traceback, and the files are written."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(
            [*SIMSCHED, *arguments], cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, timeout=100, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")
    if "--perfetto" in arguments:
        assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("arguments", [["list", "gpus"], ["schedule", SMALL], ["--version"]], ids=str)
def test_a_full_disk_behind_stdout(tmp_path, arguments):
    with open("/dev/full", "wb") as out:  # noqa: PTH123
        done = subprocess.run(
            [*SIMSCHED, *arguments],
            cwd=tmp_path,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "error: cannot write the output: No space left on device\n"


def test_a_closed_stdout(tmp_path):
    command = " ".join(["exec", sys.executable, "-c", "'from simsched.cli import main; main()'"])
    done = subprocess.run(
        ["sh", "-c", f"{command} compare {SMALL} --perfetto t.json >&-"],
        cwd=tmp_path, capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "t.json").exists()


def test_a_terminal_that_knows_ascii_alone(tmp_path):
    data = {
        "format": "simsched.graph",
        "version": 1,
        "name": "网络",
        "operators": [{"name": "a", "time": 1.0}],
        "edges": [],
    }
    (tmp_path / "g.json").write_text(json.dumps(data))
    for command in ("compare", "show", "simulate"):
        done = call(command, "g.json", folder=tmp_path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, "")
        assert r"\u7f51\u7edc" in done.stdout


def interrupted(arguments, folder, seconds):
    """Start a command, interrupt it after a while, and return (status, stderr) or None if it was too quick."""
    begun = "lambda event, args: event == 'import' and args[0] == 'simsched.cli.run' and print('begun', flush=True)"
    code = f"import sys; from simsched.cli import main; sys.addaudithook({begun}); main()"  # from there on it is ours
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(seconds)
    if process.poll() is not None:
        process.communicate()
        return None
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # the impatient press twice
    _, err = process.communicate(timeout=100)
    return process.returncode, err


@pytest.mark.parametrize("seconds", [0.02, 0.3, 0.8, 1.6, 3.2])
def test_an_interrupt(tmp_path, seconds):
    """One line, and whatever files there are are whole."""
    outcome = interrupted(["compare", LARGE, "--perfetto", "t.json", "--gantt", "t.png"], tmp_path, seconds)
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"t.json", "t.png"}
    if "t.json" in left:
        assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    if "t.png" in left:
        assert (tmp_path / "t.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    if outcome is None or "t.png" in left:  # it was done, or as good as
        return
    status, err = outcome
    assert status == 2
    assert err.startswith("error: interrupted")
    assert err.count("\n") == 1


def test_an_interrupted_schedule_keeps_the_old_file(tmp_path):
    (tmp_path / "plan.json").write_text("old")
    outcome = interrupted(["schedule", "random:layered,n_ops=400000,n_layers=300", "-o", "plan.json"], tmp_path, 1.5)
    assert outcome is not None
    assert outcome[0] == 2
    assert outcome[1].startswith("error: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == "old"


pty = pytest.importorskip("pty")


def on_a_terminal(arguments, folder, columns=120, **environment):
    """Run a command on a terminal of its own; return the status and all that it sent there."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    process = subprocess.Popen(
        [*SIMSCHED, *arguments], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env=kept | {"TERM": "xterm-256color"} | environment,
    )  # fmt: skip
    os.close(theirs)
    sent = b""
    with contextlib.suppress(OSError):  # Linux says so when the other end has closed
        while select.select([ours], [], [], 100)[0]:
            piece = os.read(ours, 65536)
            if not piece:
                break
            sent += piece
    os.close(ours)
    return process.wait(timeout=100), sent.decode()


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def test_progress_is_drawn_on_a_terminal_and_cleared(tmp_path):
    status, sent = on_a_terminal(["compare", "random:layered,n_ops=900,n_layers=30"], tmp_path)
    assert status == 0
    assert re.search(r"\b[0-9]+/1[0-9]\b", plain(sent))
    assert sent.index("\x1b[?25l") < sent.rindex("\x1b[?25h")  # the cursor comes back
    table = sent[sent.rindex("\x1b[?25h") :]
    assert "\x1b[2K" in table  # the bar's line is cleared
    assert "layered-900 on a100" in plain(table)
    assert not re.search(r"\b[0-9]+/1[0-9]\b", plain(table))


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_terminals_without_colour_get_none(tmp_path, environment):
    status, sent = on_a_terminal(["compare", SMALL], tmp_path, **environment)
    assert status == 0
    assert not re.search(r"\x1b\[(3[0-7]|38|4[0-7]|48|9[0-7])[;m]", sent)
    if environment.get("TERM") == "dumb":
        assert "\x1b" not in sent


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("arguments", [["compare", SMALL], ["list", "workloads"], ["list", "gpus"]], ids=str)
def test_a_narrow_terminal_cuts_nothing_short(tmp_path, arguments, columns):
    status, sent = on_a_terminal(arguments, tmp_path, columns=columns)
    assert status == 0
    assert "…" not in sent
    if arguments[0] == "compare":
        assert "round-robin" in sent
        assert "speedup" in sent


def test_an_error_on_a_terminal_leaves_no_bar(tmp_path):
    status, sent = on_a_terminal(["compare", SMALL, "--schedulers", "lios,nobody"], tmp_path)
    assert status == 2
    assert plain(sent).strip().splitlines()[-1].startswith("error: unknown scheduler 'nobody'")
