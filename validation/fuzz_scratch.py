"""A folder with a file of every kind, in which commands are run, and what became of it afterwards."""

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import simsched as ss
from validation import fuzz_documents as documents
from validation.fuzz_mutations import spoil

_STUDY: Final = """name = "small"
schedulers = ["sequential", "lios"]
seeds = 2
[workload]
kind = "layered"
n_ops = [6, 8]
n_layers = 3
[cluster]
gpu = "a40"
"""
_ODD_STUDY: Final = _STUDY.replace("seeds = 2", "seeds = 1000000000000")
_MOST_KEPT: Final = 24
_MOST_BYTES: Final = 100_000

State = dict[str, tuple[int, int, int, int]]


class Change(NamedTuple):
    """Files that are there and were not, that have gone, and that are not what they were; paths below the folder."""

    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]


class Scratch:
    """The folder: commands run in `folder`; what they leave there is put back to what it was.

    Parameters
    ----------
    root
        An empty folder; `root` / "here" is where commands run, so that what they leave beside it is seen.
    measured
        Whether there are measurements among the files: making them takes seconds.
    """

    def __init__(self, root: Path, measured: bool = True) -> None:
        self.root, self.folder = root, root / "here"
        self._kept: Path = root.with_name(root.name + "-kept")
        self.found: list[str] = []  # names of files that commands have written, and that others may read
        (root / "tmp").mkdir()
        self.folder.mkdir()
        _fill(self.folder, measured)
        self.keep()

    def keep(self) -> None:
        """Take what is there now for what it should be after every command."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.root, self._kept, symlinks=True)
        self._state = _state(self.root)

    def changes(self) -> Change:
        """Return what became of the folder."""
        now = _state(self.root)
        return Change(
            tuple(name for name in now if name not in self._state),
            tuple(name for name in self._state if name not in now),
            tuple(name for name, one in now.items() if name in self._state and one != self._state[name]),
        )

    def restore(self, change: Change) -> None:
        """Undo it; a small new file of ours is kept under another name, for later commands to read."""
        added = False
        for name in sorted(change.new, reverse=True):
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.exists() or path.is_symlink():
                added = self._adopt(path) or added
                path.unlink()
        for name in (*change.gone, *change.changed):
            source, target = self._kept / name, self.root / name
            if source.is_dir() and not source.is_symlink():
                target.mkdir(exist_ok=True)
                continue
            target.unlink(missing_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
        if added or change.changed or change.gone:
            self.keep()

    def _adopt(self, path: Path) -> bool:
        if len(self.found) == _MOST_KEPT or path.suffix != ".json" or path.stat().st_size > _MOST_BYTES:
            return False
        try:
            kind = json.loads(path.read_bytes())["format"].removeprefix("simsched.")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        name = f"found-{kind}-{sum(one.startswith(f'found-{kind}-') for one in self.found)}.json"
        if name.endswith(("-0.json", "-1.json")):
            shutil.copy2(path, self.folder / name)
            self.found.append(name)
            return True
        return False

    def spoil(self, names: Sequence[str], rng: Random) -> None:
        """Spoil a file, some way or other; `restore` puts it right."""
        path = self.folder / rng.choice(names)
        if not path.is_file():
            return
        content = path.read_bytes()
        structure = {".json": "json", ".onnx": "onnx"}.get(path.suffix, "text")
        step = rng.randrange(64), rng.randrange(256), rng.randrange(65536), rng.randrange(65536)
        path.write_bytes(spoil([content], structure, 0, [step]))


def _state(root: Path) -> State:
    found = {}
    for folder, inner, files in os.walk(root):
        for name in (*inner, *files):
            path = Path(folder, name)
            one = path.lstat()
            size, time = (0, 0) if path.is_dir() else (one.st_size, one.st_mtime_ns)
            found[str(path.relative_to(root))] = (one.st_mode, one.st_ino, size, time)
    return found


SPOILED: Final = (
    "graph.json", "graph.json", "plan.json", "staged.json", "program.json", "profile.json", "net.onnx", "net.dot",
    "net.stg", "net.txt", "ios.json", "cluster.json", "calibration.json", "replay.json", "study.toml", "study.toml",
    "rows/rows.jsonl", "rows/study.json", "kineto.json", "wiring.json",
)  # fmt: skip
"""Files that may be spoiled before a command is run."""


def _fill(folder: Path, measured: bool) -> None:
    """Write a file of every kind, most of them with few operators."""
    graph = documents.example_graph()
    cluster = ss.Cluster.preset("a100", 2)
    first, captured, third = documents.example_schedules()
    texts = {
        "one.json": documents.graphs()[1], "net.dot": documents.dots()[0], "net.stg": documents.stgs()[0],
        "net.txt": documents.hios_graphs()[0], "net.onnx": documents.onnxes()[0], "ios.json": documents.ios()[0],
        "kineto.json": documents.kinetos()[0], "wiring.json": documents.wirings()[0], "profile.json":
        documents.profiles()[0], "empty.json": b"", "zeros.json": bytes(4096), "deep.json": b"[" * 100_000,
        "nan.json": b'{"format": "simsched.graph", "version": 1, "operators": [{"name": "a", "time": NaN}]}',
        "binary.onnx": bytes(range(256)) * 16, "study.toml": _STUDY.encode(), "odd.toml": _ODD_STUDY.encode(),
    }  # fmt: skip
    for name, content in texts.items():
        (folder / name).write_bytes(content)
    graph.save(str(folder / "graph.json"))
    third.save(str(folder / "plan.json"))
    first.save(str(folder / "staged.json"))
    captured.lower(cluster).save(str(folder / "program.json"))
    cluster.save(str(folder / "cluster.json"))
    (folder / "folder").mkdir()
    (folder / "link.json").symlink_to("graph.json")
    (folder / "loop.json").symlink_to("loop.json")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in _MADE[: None if measured else 1]:
            _make(command)
    finally:
        os.chdir(before)
    shutil.copytree(folder / "rows", folder / "torn")
    rows = folder / "torn" / "rows.jsonl"
    rows.write_bytes(rows.read_bytes()[:-40])


_MADE: Final = (
    "study run study.toml -o rows --serial",
    "profile graph.json --backend synthetic --in-situ 1 -o measured-profile.json",
    "calibrate measured-profile.json -o calibration.json",
    "replay plan.json --backend synthetic --backend-option gpus=2 --repeats 3 -o replay.json",
    "validate one.json --backend synthetic --schedulers sequential --rounds 1 --training 1 --held-out 1 --repeats 2 "
    "--resume measured",
)


def _make(command: str) -> None:
    """Run a command that is to succeed."""
    from simsched.cli.run import run

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        status = run(command.split())
    if status:
        raise RuntimeError(f"simsched {command}: {said.getvalue()}")
