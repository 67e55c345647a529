"""What tests of the command line share: a folder of their own, and commands that succeed or are refused."""

import shutil
import sys

import pytest

from simsched.cli.run import run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder of which every test has a copy: empty, unless a module fills it."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(autouse=True)
def _folder(files, tmp_path, monkeypatch):
    shutil.copytree(files, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # a scheduler of the user's adds the folder
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the folder is to stay as it was


@pytest.fixture
def said(capsys):
    """Run a command, given as a line or in parts, that succeeds; return what it printed.

    It has nothing to say on stderr, unless it is loud.
    """

    def say(*parts, loud=False):
        status = run(parts[0].split() if len(parts) == 1 else list(map(str, parts)))
        out, err = capsys.readouterr()
        assert status == 0, err
        assert not set("\x1b…") & set(out)  # a pipe gets text alone
        assert err == "" or (loud and "error" not in err)
        return out

    return say


@pytest.fixture
def refused(tmp_path, capsys):
    """Run a command that must fail, by default with 2, and change no file; return its line without ``error: ``."""

    def contents():
        return {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}

    def refuse(*parts, ends=2):
        before = contents()
        status = run(parts[0].split() if len(parts) == 1 else list(map(str, parts)))
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (ends, "", 1), err
        assert err.startswith("error: ")
        assert not err.startswith("error: unexpected "), err  # what nobody thought of
        assert contents() == before
        return err.removeprefix("error: ").rstrip("\n")

    return refuse
