"""Names that pictures could stumble over, sizes that nothing should grow with."""

import subprocess
import sys

import pytest

import simsched as ss
from simsched.cli.run import run


def saved(tmp_path, name, **fields):
    """A graph of one operator in a file."""
    path = tmp_path / "graph.json"
    ss.OpGraph([ss.Operator(name, **fields)], name="net").save(str(path))
    return str(path)


@pytest.mark.parametrize("name", ["$\\foo$", "a$b", "{x}", "日本"])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_chart_of_any_name(tmp_path, name):
    """A $ begins no formula: the name is drawn as it is."""
    graph = saved(tmp_path, name, time=5.0, kind=name)
    assert run(["simulate", graph, "--gantt", str(tmp_path / "t.svg")]) == 0
    assert (tmp_path / "t.svg").stat().st_size > 1000


def test_a_trace_too_long_for_perfetto(tmp_path, capsys):
    assert run(["simulate", saved(tmp_path, "a", time=1e300), "--perfetto", str(tmp_path / "t.json")]) == 2
    assert "too long for Perfetto" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_streams_beyond_the_operators_cost_nothing(tmp_path):
    graph = saved(tmp_path, "a", time=1.0)
    assert run(["simulate", graph, "--scheduler", "lios", "--option", "streams=1000000000"]) == 0


def test_python_m_simsched():
    done = subprocess.run([sys.executable, "-m", "simsched", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"simsched {ss.__version__}\n"
