"""What the commands print and write when all is well."""

import json
import re

import pytest

import simsched
from simsched.cli import schedule
from simsched.model import Program, Schedule
from simsched.schedulers import SCHEDULERS

SMALL = "random:layered,n_ops=12,n_layers=4"
ROW = {
    "scheduler", "makespan_us", "makespan_low_us", "makespan_high_us", "speedup_low", "speedup_high", "place",
    "p50_us", "p95_us", "p99_us", "estimate_us", "speedup", "over_bound", "streams",
    "devices", "syncs", "peak_memory_bytes", "sm_utilization", "sm_efficiency", "search_s", "warning", "reason",
}  # fmt: skip


@pytest.fixture
def diamond(tmp_path):
    """A graph file: a feeds b and c, which feed d; 10 us each and no load."""
    edges = [{"src": s, "dst": d, "nbytes": 1e6} for s, d in ("ab", "ac", "bd", "cd")]
    operators = [{"name": name, "time": 10.0, "weight_nbytes": 1e6} for name in "abcd"]
    data = {"format": "simsched.graph", "version": 1, "name": "diamond", "operators": operators, "edges": edges}
    (tmp_path / "diamond.json").write_text(json.dumps(data))
    return "diamond.json"


def makespan(said, *arguments):
    return json.loads(said("simulate", *arguments, "--json"))["makespan_us"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(said, arguments):
    out = said(*arguments)
    for command in ("compare", "schedule", "simulate", "whatif", "calibrate", "study", "report", "list"):
        assert command in out
        assert f"simsched {command}" in said(f"{command} --help")


def test_version_runs_no_command(said):
    assert said("--version") == f"simsched {simsched.__version__}\n"
    assert said("--version", "compare") == f"simsched {simsched.__version__}\n"


def test_fast_is_the_default_and_at_least_four(said):
    out = said("compare", SMALL)
    rows = json.loads(said("compare", SMALL, "--json"))["rows"]
    assert len(rows) >= 4
    for row in rows:
        assert f"\n{row['scheduler']} " in out or f"{row['scheduler']}, " in out or f"{row['scheduler']}: as " in out
    assert [r["scheduler"] for r in json.loads(said("compare", SMALL, "--schedulers", "fast", "--json"))["rows"]] == [
        r["scheduler"] for r in rows
    ]


@pytest.mark.usefixtures("quick_search")
def test_sets_and_names_are_listed_together_each_once(said):
    rows = json.loads(said("compare", SMALL, "--schedulers", "lios, all,lios", "--json"))["rows"]
    assert [row["scheduler"] for row in rows] == ["lios", *(name for name in SCHEDULERS if name != "lios")]


def test_compare_as_json(said):
    found = json.loads(said("compare", SMALL, "--gpu", "v100", "--gpus", "2", "--json"))
    assert found.keys() == {"graph", "cluster", "sampling", "doubt", "rows"}
    assert found["graph"]["name"] == "layered-12"
    assert (found["graph"]["operators"], found["cluster"]["devices"]) == (12, ["v100", "v100"])
    for row in found["rows"]:
        assert row.keys() == ROW
        if row["scheduler"] == "autograph":  # which wants shapes
            assert row["reason"].startswith("autograph: ")
            continue
        assert row["reason"] is None
        assert row["over_bound"] >= 1 - 1e-9
    by_name = {row["scheduler"]: row for row in found["rows"]}
    assert by_name["sequential"]["speedup"] == 1.0
    assert by_name["round-robin"]["devices"] == 2


def test_a_scheduler_that_refuses_has_a_row_with_the_reason(said, tmp_path):
    (tmp_path / "picky_scheduler.py").write_text(
        "import simsched\n\ndef picky(graph, cluster, cost):\n    raise simsched.SimschedError('too [/green]')\n"
    )
    arguments = ("compare", SMALL, "--schedulers", "lios,picky_scheduler:picky")
    first, second = json.loads(said(*arguments, "--json"))["rows"]
    assert (first["reason"], second["reason"], second["makespan_us"]) == (None, "too [/green]", None)
    assert "too [/green]" in said(*arguments)


def test_a_scheduler_is_found_in_the_current_folder(said, tmp_path):
    (tmp_path / "dealing_here.py").write_text(
        "import simsched as ss\n\n"
        "def dealing(graph, cluster, cost, *, streams=4):\n"
        "    return ss.Schedule(graph, [ss.Placement(n, stream=i % streams) for i, n in enumerate(graph.order)])\n"
    )
    rows = json.loads(said("compare", SMALL, "--schedulers", "lios,dealing_here:dealing", "--json"))["rows"]
    assert [(row["scheduler"], row["reason"]) for row in rows] == [("lios", None), ("dealing_here:dealing", None)]
    written = json.loads(said("schedule", SMALL, "--scheduler", "dealing_here:dealing", "--option", "streams=3"))
    assert {row["stream"] for row in written["placements"]} == {0, 1, 2}


def test_pictures_are_of_the_best_schedule(said, tmp_path):
    out = said("compare", SMALL, "--schedulers", "sequential,lios", "--perfetto", "t.json", "--gantt", "t.PNG")
    assert out.endswith("lios written to t.json\nlios written to t.PNG\n")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (tmp_path / "t.PNG").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.PNG", "t.json"]


def test_json_alone_is_printed_with_pictures(said, tmp_path):
    json.loads(said("compare", SMALL, "--schedulers", "lios", "--json", "--gantt", "t.svg"))
    json.loads(said("simulate", SMALL, "--json", "--gantt", "t.pdf"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.pdf", "t.svg"]


def test_schedule_prints_what_it_writes(said, tmp_path):
    printed = said("schedule", SMALL, "--scheduler", "lios", "--option", "streams=2")
    told = said("schedule", SMALL, "--scheduler", "lios", "--option", " streams = 2", "-o", "plan.json")
    assert told.endswith("written to plan.json\n")
    assert (tmp_path / "plan.json").read_text() == printed
    plan = Schedule.load("plan.json")
    assert (plan.scheduler, plan.n_streams, len(plan)) == ("lios", 2, 12)


@pytest.mark.parametrize("scheduler", ["hios-lp", "opara", "search"])
def test_plans_and_programs_give_the_same_makespan_as_the_graph(said, scheduler):
    two = ("--gpus", "2")
    given = ("--scheduler", scheduler, *(("--option", "evaluations=50") if scheduler == "search" else ()), *two)
    said("schedule", SMALL, *given, "-o", "plan.json", "--program", "program.json")
    assert isinstance(Program.load("program.json"), Program)
    direct = makespan(said, SMALL, *given)
    assert makespan(said, "plan.json", *two) == direct
    assert makespan(said, "program.json", *two) == direct


def test_simulate_says_where_the_time_goes(said, diamond):
    """Four operators of 10 us one after the other behind one launch: 40 us of compute at least."""
    found = json.loads(said("simulate", diamond, "--scheduler", "sequential", "--json"))
    assert found["makespan_us"] >= 40.0
    assert found["blame_us"]["compute"] == pytest.approx(40.0)
    assert sum(found["blame_us"].values()) == pytest.approx(found["makespan_us"])
    out = said("simulate", diamond, "--scheduler", "sequential")
    assert "diamond: 4 operators, 4 edges" in out
    assert "critical path   4 operators: compute " in out


BRIEF = {"graph", "cluster", "makespan_us", "instructions", "scheduling_s", "lowering_s", "simulating_s"}
FULL = {
    "graph", "cluster", "makespan_us", "blame_us", "peak_memory_bytes", "sm_utilization", "sm_efficiency",
    "achieved_occupancy", "spans", "warnings",
}  # fmt: skip


def test_simulate_in_brief(said, diamond):
    found = json.loads(said("simulate", diamond, "--brief", "--json"))
    assert set(found) == BRIEF
    assert found["makespan_us"] == makespan(said, diamond)
    assert found["instructions"] > 4
    assert all(found[f"{step}_s"] > 0 for step in ("scheduling", "lowering", "simulating"))
    lines = said("simulate", diamond, "--brief").splitlines()
    heads = [line.split("  ")[0] for line in lines]
    assert heads == ["graph", "cluster", "makespan", "instructions", "wall time", "spans"]
    assert re.fullmatch(r"wall time     scheduling \d+\.\d+ s, lowering \d+\.\d+ s, simulating \d+\.\d+ s", lines[4])
    assert "not made; --full makes them" in lines[5]


def test_large_programs_are_summed_up_in_brief(said, diamond, monkeypatch):
    """From a million instructions on, here from four; not if a picture needs the spans anyway."""
    assert set(json.loads(said("simulate", diamond, "--json"))) == FULL
    whole = said("simulate", diamond)
    assert said("simulate", diamond, "--full") == whole
    monkeypatch.setattr(schedule, "LARGE", 3)
    assert "not made; --full makes them" in said("simulate", diamond)
    assert set(json.loads(said("simulate", diamond, "--json"))) == BRIEF
    assert said("simulate", diamond, "--full") == whole
    assert set(json.loads(said("simulate", diamond, "--json", "--full"))) == FULL
    assert said("simulate", diamond, "--perfetto", "t.json") == whole + "trace written to t.json\n"
    monkeypatch.setattr(schedule, "LARGE", 10**6)
    assert set(json.loads(said("simulate", diamond, "--json", "--brief"))) == BRIEF


def test_options_of_lowering_and_jitter(said, diamond):
    """As the library has them."""
    line = f"simulate {diamond} --gpus 2 --scheduler round-robin --threads one --transfers blocking --events literal"
    graph, cluster = simsched.OpGraph.load(diamond), simsched.Cluster.preset("a100", 2)
    plan = simsched.schedule(graph, cluster, "round-robin")
    program = plan.lower(cluster, threads="one", transfers="blocking", events="literal")
    expected = simsched.simulate(program, cluster, jitter=0.2, rng=3).makespan
    assert json.loads(said(f"{line} --jitter 0.2 --seed 3 --json"))["makespan_us"] == expected
    assert expected != simsched.simulate(plan, cluster, jitter=0.2, rng=3).makespan


def test_show(said, diamond):
    """Depth 3 and width 2; 40 us of work over a path of 30 us."""
    facts = json.loads(said("show", diamond, "--json"))
    assert [facts[key] for key in ("name", "operators", "edges", "width", "depth")] == ["diamond", 4, 4, 2, 3]
    assert (facts["work_us"], facts["critical_path_us"]) == (40.0, 30.0)
    assert facts["parallelism_bound"] == pytest.approx(4 / 3)
    assert facts["operators_without_load"] == 4
    out = said("show", diamond)
    assert "parallelism bound       1.33x" in out
    assert "operators without load  4" in out


def test_workloads_are_listed_as_they_are_typed(said):
    """Every parameter that the table shows can be given back as it stands."""
    out = " ".join(said("list", "workloads").split())
    for name, first, last in (("inception_v3", "batch=", "fp32"), ("random:layered", "n_ops=", "1.0")):
        row = out[out.index(name) :]
        settings = row[row.index(first) : row.index(last) + len(last)]
        said("show", f"{name},{settings}", "--json")


def test_names_with_markup_stay_as_they_are(said, tmp_path):
    operators = [{"name": "[/q] [red]x[/red]", "kind": "[/z]", "time": 3.0, "weight_nbytes": 1e12}]
    data = {"format": "simsched.graph", "version": 1, "name": "[/net]", "operators": operators, "edges": []}
    (tmp_path / "g.json").write_text(json.dumps(data))
    out = said("compare", "g.json", "--gantt", "g.png")
    assert out.startswith("[/net] on a100")
    assert "warning: lios: gpu0 needs 931.3 GiB but a100 has 40.0 GiB" in out
    assert "1 of 1 operators have neither kernels nor utilization" in out
    assert "warning         gpu0 needs" in said("simulate", "g.json")
    assert "[/net]" in said("show", "g.json")


def test_names_in_other_scripts_are_drawn_without_a_word(said, tmp_path):
    operators = [{"name": "卷积", "kind": "卷", "time": 3.0}]
    data = {"format": "simsched.graph", "version": 1, "name": "网络", "operators": operators, "edges": []}
    (tmp_path / "图.json").write_text(json.dumps(data), encoding="utf-8")
    assert "网络" in said("compare", "图.json", "--gantt", "图.png", "--perfetto", "迹.json")
    assert (tmp_path / "图.png").exists()
    assert (tmp_path / "迹.json").exists()
