"""The command as a process: interrupts, pipes, terminals, closed and full outputs."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import simsched as ss
from simsched.base.system import has_threads, lack
from simsched.cli.run import run

FREE = ss.Cluster.preset("a100").without_overheads()
SIMSCHED = [sys.executable, "-m", "simsched"]
SMALL = "random:layered,n_ops=12,n_layers=4"
LARGE = "random:layered,n_ops=4000,n_layers=60"  # several seconds: an interrupt comes in time


def call(line, **options):
    """Run a command line; return the process that has ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*SIMSCHED, *line.split()], text=True, timeout=100, check=False, **pipes)


def test_stdin(said):
    """Its format is told by what it holds: a graph in JSON or DOT, a schedule."""
    said("convert", SMALL, "g.dot")
    plan = said("schedule", SMALL)
    graph = json.dumps(json.loads(plan)["graph"])
    for line, text in (
        ("show -", Path("g.dot").read_text()),
        ("explain -", plan),
        ("whatif /dev/stdin --set gpus=2", graph),
    ):
        done = call(line, input=text)
        assert (done.returncode, done.stderr, bool(done.stdout)) == (0, "", True)
    assert call("show -", input="1 2 3").stderr.startswith("error: /dev/stdin: its first bytes tell no format; ")


@pytest.mark.parametrize("name", ["p.json", "p"])
@pytest.mark.parametrize("line", ["show", "report -o r.html", "compare --schedulers lios"])
def test_a_fifo_is_read_once(said, line, name):
    said("convert", SMALL, "g.json")
    os.mkfifo(name)
    with ThreadPoolExecutor() as pool:
        pool.submit(Path(name).write_text, Path("g.json").read_text())
        assert "layered-12" in said(f"{line} {name}")


def test_python_warnings_stay_away():
    """Nor a word of numpy's where operators are so long that its arithmetic overflows; what the library warns of is."""
    ss.OpGraph([ss.Operator("a", time=1e308, utilization=0.5), ss.Operator("b", time=1e308)]).save("g.json")
    done = call("simulate g.json")
    assert "Warning" not in done.stderr
    assert done.stderr.count("\n") == done.returncode // 2
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 5}
    kernel["args"] = {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 1, 1], "block": [32, 1, 1]}
    Path("t.json").write_text(json.dumps({"deviceProperties": [{"id": 0, "name": ""}], "traceEvents": [kernel]}))
    assert call("convert t.json p.json").stderr.startswith("warning: t.json: deviceProperties[0]: device 0 has no name")


@pytest.mark.parametrize("line", ["--help", f"schedule {SMALL}", f"compare {SMALL} --perfetto t.json"])
def test_a_reader_that_goes_away(line):
    """stdout is a pipe that nobody reads: as with ``| head``, no traceback, and the files are written."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        done = call(line, stdout=out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "t.json" not in line or json.loads(Path("t.json").read_text())["traceEvents"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("line", [f"schedule {SMALL}", "--version"])
def test_a_full_disk_behind_stdout(line):
    with open("/dev/full", "wb") as out:  # noqa: PTH123
        done = call(line, stdout=out)
    assert (done.returncode, done.stderr) == (2, "error: cannot write the output: No space left on device\n")


def test_a_closed_stdout():
    done = call(f"compare {SMALL} --perfetto t.json", stdout=None, preexec_fn=partial(os.close, 1))
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("t.json").exists()


@pytest.mark.parametrize("numbers", [(2,), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize(
    ("line", "status"),
    [(f"simulate {SMALL} --perfetto t.json", 0), ("--version", 0), ("--help", 0), ("compare nobody", 2), ("nobody", 2)],
)
def test_closed_streams(numbers, line, status):
    """What is said goes nowhere, not into the files; and the status is the usual one."""
    done = call(line, stdin=None, stdout=None, stderr=None, preexec_fn=lambda: [os.close(number) for number in numbers])
    assert done.returncode == status
    assert "t.json" not in line or json.loads(Path("t.json").read_text())["traceEvents"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
def test_a_full_disk_behind_stderr():
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        assert call("compare nobody", stderr=full).returncode == 2
        assert call("compare nobody", stderr=full, stdout=full).returncode == 2
        assert call(f"simulate {SMALL}", stderr=full).returncode == 0


class Raising:
    """A stream to which nothing can be written."""

    encoding = "utf-8"

    def write(self, _text):
        raise OSError(5, "Input/output error")

    flush = isatty = lambda self: self.write("")


def test_streams_of_python_that_were_closed(monkeypatch, capsys):
    for name, status in (("stdout", 2), ("stderr", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
            getattr(sys, name).close()
            assert run(["simulate", SMALL]) == status
    assert "I/O operation on closed file" in capsys.readouterr().err


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert lack(caught.value) == "the current folder does not exist any more; change to one that does"
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("stream", [None, Raising()], ids=["none", "raising"])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_streams_of_python(name, stream, monkeypatch, capsys):
    """A missing one changes nothing; output that is lost is an error; nobody can be told of a lost error."""
    lost = name == "stdout" and stream is not None
    monkeypatch.setattr(sys, name, stream)
    assert run(["simulate", SMALL]) == (2 if lost else 0)
    assert run(["simulate", "nobody"]) == 2
    assert run(["compare", SMALL, "--schedulers", "nobody"]) == 2
    out, err = capsys.readouterr()
    assert not re.search("^error|Traceback", out, re.MULTILINE)
    assert err.startswith("error: cannot write the output: Input/output error\n") == lost
    graph = ss.OpGraph([ss.Operator("a", time=1.0)])
    assert ss.simulate(ss.schedule(graph, FREE, "lios"), FREE).makespan == 1.0


def test_no_thread_is_to_be_had(said, monkeypatch):
    """As under ``ulimit -u``: what needs none is done, and the rest says so in a line."""

    def refuse(_self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for line in ("simulate", "compare", "explain", "show"):
        assert said(f"{line} {SMALL}")
    assert not has_threads()
    assert lack(RuntimeError("can't start new thread")).startswith("the system starts no thread: ")
    assert lack(RuntimeError("no such thread")) is None


@pytest.mark.parametrize("mib", [100, 200, 260, 340])
def test_little_memory(mib):
    """``ulimit -v``: the command works or says in one line that memory is short."""
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (mib << 20, mib << 20))
    done = call(f"compare {SMALL} --schedulers lios", preexec_fn=limit)
    assert done.returncode in (0, 2)
    assert done.stderr.count("\n") == done.returncode // 2
    assert done.returncode == 0 or "ulimit -v" in done.stderr


def test_errors_of_the_system_are_told_as_they_are():
    error = OSError(28, "No space left on device", "a.json")
    assert lack(error) == "No space left on device: a.json"
    assert lack(OSError("could not find it")) == "could not find it"
    assert lack(ImportError("a.so: failed to map segment from shared object")).startswith("out of memory (ulimit -v) ")
    assert lack(ImportError("no module")) is None


def test_a_terminal_that_knows_ascii_alone():
    ss.OpGraph([ss.Operator("a", time=1.0)], name="网络").save("g.json")
    done = call("compare g.json", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u7f51\u7edc" in done.stdout


@pytest.mark.parametrize("seconds", [0.02, 1.2])
def test_an_interrupt(seconds):
    """One line, whatever files there are are whole, and the impatient press twice."""
    begun = "lambda event, args: event == 'import' and args[0] == 'simsched.cli.run' and print('begun', flush=True)"
    code = f"import sys; from simsched.cli import main; sys.addaudithook({begun}); main()"  # from there on it is ours
    line = [sys.executable, "-c", code, "compare", LARGE, "--perfetto", "t.json", "--gantt", "t.png"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    left = {path.name for path in Path().iterdir()}
    assert left <= {"t.json", "t.png"}
    assert "t.json" not in left or json.loads(Path("t.json").read_text())["traceEvents"]
    if "t.png" in left:  # it was as good as done
        assert Path("t.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    else:
        assert (process.returncode, err[:18], err.count("\n")) == (130, "error: interrupted", 1)


pty = pytest.importorskip("pty")


def on_a_terminal(line, columns=120, **environment):
    """Run a command on a terminal of its own; return the status and all that it sent there."""
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    environment = kept | {"TERM": "xterm-256color"} | environment
    process = subprocess.Popen([*SIMSCHED, *line.split()], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    sent = b""
    with contextlib.suppress(OSError):  # Linux says so when the other end has closed
        while piece := os.read(ours, 65536):
            sent += piece
    os.close(ours)
    return process.wait(timeout=100), sent.decode()


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def test_progress_is_drawn_on_a_terminal_and_cleared():
    status, sent = on_a_terminal("compare random:layered,n_ops=900,n_layers=30")
    assert status == 0
    assert re.search(r"\b[0-9]+/1[0-9]\b", plain(sent))
    assert sent.index("\x1b[?25l") < sent.rindex("\x1b[?25h")  # the cursor comes back
    table = sent[sent.rindex("\x1b[?25h") :]
    assert "\x1b[2K" in table  # the bar's line is cleared
    assert "layered-900 on a100" in plain(table)
    assert not re.search(r"\b[0-9]+/1[0-9]\b", plain(table))


@pytest.mark.parametrize(
    ("environment", "never"),
    [({"TERM": "dumb"}, r"\x1b"), ({"NO_COLOR": "1"}, r"\x1b\[(3[0-7]|38|4[0-7]|48|9[0-7])[;m]")],
)
def test_terminals_without_colour_get_none(environment, never):
    status, sent = on_a_terminal(f"compare {SMALL} --schedulers lios", **environment)
    assert status == 0
    assert not re.search(never, sent)


@pytest.mark.parametrize(("line", "word"), [(f"compare {SMALL}", "speedup"), ("list workloads", "inception_v3")])
def test_a_narrow_terminal_cuts_nothing_short(line, word):
    status, sent = on_a_terminal(line, columns=40)
    assert status == 0
    assert "…" not in sent
    assert word in sent


def test_an_error_on_a_terminal_leaves_no_bar():
    status, sent = on_a_terminal(f"compare {SMALL} --schedulers lios,nobody")
    assert status == 2
    assert plain(sent).strip().splitlines()[-1].startswith("error: unknown scheduler 'nobody'")


@pytest.mark.parametrize(
    ("words", "answers"), [("simsched comp", ["compare"]), ("simsched compare --gp", ["--gpu", "--gpus"])]
)
def test_a_shell_completes_commands_and_options(words, answers):
    asked = {"_SIMSCHED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = call("", env=os.environ | asked)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, answers, "")
