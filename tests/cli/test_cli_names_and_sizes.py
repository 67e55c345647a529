"""Names that pictures could stumble over, sizes that nothing should grow with."""

import json
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


def test_half_a_character_is_refused(tmp_path, capsys):
    """JSON can hold one half of a surrogate pair, which no file or terminal can."""
    path = tmp_path / "graph.json"
    document = ss.OpGraph([ss.Operator("NAME", time=1.0)]).to_dict()
    path.write_text(json.dumps(document).replace("NAME", "\\ud800"))
    assert run(["show", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_whole_escaped_character_is_read(tmp_path, capsys):
    r"""\ud83d\ude00 is one character, in two escapes."""
    path = tmp_path / "graph.json"
    document = ss.OpGraph([ss.Operator("NAME", time=1.0)]).to_dict()
    path.write_text(json.dumps(document).replace("NAME", "\\ud83d\\ude00"))
    assert run(["simulate", str(path), "--json"]) == 0


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(ss.OpGraph([ss.Operator("a", time=1.0)]).to_dict()), encoding="utf-8-sig")
    assert run(["show", str(path)]) == 0


def test_a_trace_too_long_for_perfetto(tmp_path, capsys):
    assert run(["simulate", saved(tmp_path, "a", time=1e300), "--perfetto", str(tmp_path / "t.json")]) == 2
    assert "too long for Perfetto" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_streams_beyond_the_operators_cost_nothing(tmp_path):
    graph = saved(tmp_path, "a", time=1.0)
    assert run(["simulate", graph, "--scheduler", "lios", "--option", "streams=1000000000"]) == 0


@pytest.mark.parametrize("arguments", [["--scheduler", "greedy"], ["--option", "streams=2"]])
def test_a_plan_is_not_scheduled_again(tmp_path, capsys, arguments):
    graph, plan = saved(tmp_path, "a", time=1.0), str(tmp_path / "plan.json")
    assert run(["schedule", graph, "-o", plan]) == 0
    assert run(["simulate", plan, *arguments]) == 2
    assert "is scheduled already" in capsys.readouterr().err


def test_python_m_simsched():
    done = subprocess.run([sys.executable, "-m", "simsched", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"simsched {ss.__version__}\n"
