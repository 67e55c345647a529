"""What compare, schedule, simulate, show and list print and write when all is well."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import simsched
import workloads
from simsched.cli import schedule
from simsched.model import Edge, Operator, OpGraph, Program, Schedule
from simsched.schedulers import SCHEDULERS

SMALL = "random:layered,n_ops=12,n_layers=4"
MINE = """
import simsched as ss
def picky(graph, cluster, cost): raise ss.SimschedError("too [/green]")
def dealing(graph, cluster, cost, *, streams=4):
    return ss.Schedule(graph, [ss.Placement(n, stream=i % streams) for i, n in enumerate(graph.order)])
"""


@pytest.fixture
def diamond():
    """A graph file: a feeds b and c, which feed d; 10 us each and no load."""
    operators = [Operator(name, time=10.0, weight_nbytes=1e6) for name in "abcd"]
    OpGraph(operators, [Edge(s, d, 1e6) for s, d in ("ab", "ac", "bd", "cd")], "diamond").save("diamond.json")
    return "diamond.json"


def rows(said, line):
    return json.loads(said(f"compare {line} --json"))["rows"]


def makespan(said, *arguments):
    return json.loads(said("simulate", *arguments, "--json"))["makespan_us"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(said, arguments):
    out = said(*arguments)
    for command in ("compare", "schedule", "simulate", "whatif", "calibrate", "study", "report", "list"):
        assert command in out
        assert f"simsched {command}" in said(f"{command} --help")


def test_version_runs_no_command(said):
    assert said("--version") == said("--version", "compare") == f"simsched {simsched.__version__}\n"


def test_compare_is_what_the_library_says(said):
    """But for wall times, in JSON; the table has a row for each, or says which other it is as."""
    line = f"{SMALL} --gpu v100 --gpus 2 --jitter 0.1 --seed 3 --samples 5"
    found, again = (json.loads(said(f"compare {line}{more} --json")) for more in ("", " --schedulers fast"))
    graph, cluster = workloads.from_spec(SMALL), simsched.Cluster.preset("v100", 2)
    expected = json.loads(json.dumps(simsched.compare(graph, cluster, jitter=0.1, rng=3, samples=5).summary()))
    for row in (*found["rows"], *again["rows"], *expected["rows"]):
        row.pop("search_s")
    assert found == again == expected
    text = " ".join(said(f"compare {line}").split())
    assert "p50, p99 of 5 samples, jitter 10 %, seed 3; makespan and speedup without jitter" in text
    for row in found["rows"]:
        assert any(f" {row['scheduler']}{end}" in text for end in (" ", ",", ":"))


@pytest.mark.usefixtures("quick_search")
def test_sets_and_names_are_listed_together_each_once(said):
    names = [row["scheduler"] for row in rows(said, f"{SMALL} --schedulers lios,all,lios")]
    assert names == ["lios", *(name for name in SCHEDULERS if name != "lios")]


def test_the_jitter_of_samples_is_2_percent_unless_given(said):
    found = json.loads(said(f"compare {SMALL} --schedulers lios --samples 2 --json"))
    assert found["sampling"] == {"n": 2, "jitter": 0.02, "seed": 0}


def test_schedulers_of_the_current_folder(said):
    """One that refuses has a row with the reason, and no box."""
    Path("mine_here.py").write_text(MINE)
    line = f"{SMALL} --schedulers lios,mine_here:dealing,mine_here:picky"
    found = rows(said, f"{line} --samples 2 --box b.svg")
    assert [row["reason"] for row in found] == [None, None, "too [/green]"]
    assert found[2]["makespan_us"] is found[2]["p50_us"] is None
    assert "too [/green]" in said(f"compare {line}")
    assert "dealing" in Path("b.svg").read_text(encoding="utf-8")
    assert "picky" not in Path("b.svg").read_text(encoding="utf-8")
    written = json.loads(said(f"schedule {SMALL} --scheduler mine_here:dealing --option streams=3"))
    assert {row["stream"] for row in written["placements"]} == {0, 1, 2}


def test_pictures_are_of_the_best_schedule(said, tmp_path):
    """With --json they are not spoken of."""
    out = said(f"compare {SMALL} --schedulers sequential,lios --perfetto t.json --gantt t.PNG --samples 4 --box b.svg")
    assert out.endswith("lios written to t.json\nlios written to t.PNG\nbox plot written to b.svg\n")
    json.loads(said(f"simulate {SMALL} --json --gantt t.pdf"))
    assert json.loads(Path("t.json").read_text())["traceEvents"]
    for name, magic in {"t.PNG": b"\x89PNG", "b.svg": b"<?xml", "t.pdf": b"%PDF"}.items():
        assert Path(name).read_bytes().startswith(magic)
    assert len(list(tmp_path.iterdir())) == 4


def test_schedule_prints_what_it_writes(said):
    printed = said("schedule", SMALL, "--scheduler", "lios", "--option", "streams=2")
    told = said("schedule", SMALL, "--scheduler", "lios", "--option", " streams = 2", "-o", "plan.json")
    assert told.endswith("written to plan.json\n")
    assert Path("plan.json").read_text() == printed
    plan = Schedule.load("plan.json")
    assert (plan.scheduler, plan.n_streams, len(plan)) == ("lios", 2, 12)


@pytest.mark.parametrize("scheduler", ["hios-lp", "opara"])
def test_plans_and_programs_give_the_same_makespan_as_the_graph(said, scheduler):
    two = ("--gpus", "2")
    said("schedule", SMALL, "--scheduler", scheduler, *two, "-o", "plan.json", "--program", "program.json")
    assert isinstance(Program.load("program.json"), Program)
    direct = makespan(said, SMALL, "--scheduler", scheduler, *two)
    assert makespan(said, "plan.json", *two) == makespan(said, "program.json", *two) == direct


FULL = {
    "graph",
    "cluster",
    "makespan_us",
    "blame_us",
    "peak_memory_bytes",
    "sm_utilization",
    "sm_efficiency",
    "achieved_occupancy",
    "spans",
    "warnings",
}


def test_simulate_says_where_the_time_goes(said, diamond):
    """Four operators of 10 us one after the other behind one launch: 40 us of compute at least."""
    found = json.loads(said("simulate", diamond, "--scheduler", "sequential", "--json"))
    assert found.keys() == FULL
    assert found["blame_us"]["compute"] == pytest.approx(40.0)
    assert sum(found["blame_us"].values()) == pytest.approx(found["makespan_us"])
    assert "critical path   4 operators: compute " in said("simulate", diamond, "--scheduler", "sequential")


def test_simulate_in_brief(said, diamond, monkeypatch):
    """From a million instructions on, here from four; not if a picture needs the spans anyway."""
    whole, expected = said("simulate", diamond), makespan(said, diamond)
    monkeypatch.setattr(schedule, "LARGE", 3)
    found = json.loads(said("simulate", diamond, "--json"))
    assert found.keys() == {"graph", "cluster", "makespan_us", "instructions"}
    assert found["makespan_us"] == expected
    heads = [line.split("  ")[0] for line in said("simulate", diamond).splitlines()]
    assert heads == ["graph", "cluster", "makespan", "instructions"]
    assert said("simulate", diamond, "--perfetto", "t.json") == whole + "trace written to t.json\n"


def test_simulate_draws_operator_times(said, diamond):
    """As the library does."""
    graph, cluster = simsched.OpGraph.load(diamond), simsched.Cluster.preset("a100", 2)
    plan = simsched.schedule(graph, cluster, "round-robin")
    expected = simsched.simulate(plan, cluster, jitter=0.2, rng=3).makespan
    line = f"{diamond} --gpus 2 --scheduler round-robin --jitter 0.2 --seed 3"
    assert makespan(said, *line.split()) == expected


def label(path):
    return ET.parse(path).getroot().get("aria-label")


def test_show(said, diamond):
    """Depth 3 and width 2; 40 us of work over a path of 30 us."""
    facts = json.loads(said("show", diamond, "--svg", "g.svg", "--json"))
    assert [facts[key] for key in ("name", "operators", "edges", "width", "depth")] == ["diamond", 4, 4, 2, 3]
    assert (facts["work_us"], facts["critical_path_us"]) == (40.0, 30.0)
    assert facts["parallelism_bound"] == pytest.approx(4 / 3)
    assert facts["operators_without_load"] == 4
    out = said("show", diamond, "--svg", "g.svg", "--dot", "g.dot")
    assert "parallelism bound       1.33x" in out
    assert "operators without load  4" in out
    assert out.endswith("picture written to g.svg\npicture written to g.dot\n")
    assert label("g.svg").startswith("diamond: 4 operators, ")
    assert Path("g.dot").read_text(encoding="utf-8").startswith('digraph "diamond" {\n')


def test_show_draws_schedules(said):
    """One that is made, and one from a file, alike."""
    said("show", SMALL, "--svg", "a.svg", "--scheduler", "inter-lp", "--gpus", "2")
    assert label("a.svg").startswith("layered-12 by inter-lp: 12 operators")
    assert "2 streams on 2 devices" in label("a.svg")
    said("schedule", SMALL, "--scheduler", "inter-lp", "--gpus", "2", "-o", "plan.json")
    said("show", "plan.json", "--svg", "b.svg")
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


def test_workloads_are_listed_as_they_are_typed(said):
    """Every parameter that the table shows can be given back as it stands."""
    out = " ".join(said("list", "workloads").split())
    for name, first, last in (("inception_v3", "batch=", "fp32"), ("random:layered", "n_ops=", "1.0")):
        row = out[out.index(name) :]
        settings = row[row.index(first) : row.index(last) + len(last)]
        said("show", f"{name},{settings}", "--json")


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_stay_as_they_are(said):
    """Those with markup, formulas and other scripts, also where they are drawn."""
    names = ("[/q] [red]x[/red]", "$\\foo$", "a$b", "{x}", "日本")
    OpGraph([Operator(n, n, time=3.0, weight_nbytes=2e11) for n in names], name="[/网络]").save("图.json")
    out = said("compare", "图.json", "--gantt", "图.png", "--perfetto", "迹.json")
    assert out.startswith("[/网络] on a100")
    assert "warning: lios: gpu0 needs 931.3 GiB but a100 has 40.0 GiB" in out
    assert "5 of 5 operators have neither kernels nor utilization" in out
    assert "warning         gpu0 needs" in said("simulate", "图.json", "--gantt", "图.svg")
    assert "[/网络]" in said("show", "图.json")
    assert {path.name for path in Path().iterdir()} == {"图.json", "图.png", "图.svg", "迹.json"}


def test_streams_beyond_the_operators_cost_nothing(said, diamond):
    said("simulate", diamond, "--scheduler", "lios", "--option", "streams=1000000000")
