"""Rows of measured kernels as a profile."""

import pytest

import simsched as ss
import workloads
from simsched.base.errors import FormatError, SimschedError
from simsched.calibration import calibrate
from simsched.model.profile import Profile
from simsched.model.program import LAUNCH
from simsched.model.trace import KERNEL

GPU = ss.Cluster.preset("v100").replace_devices(launch=4.0, launch_latency=6.0)
LINES = """kernel,blocks,threads,registers,shared_memory,stream,begin_us,end_us
gemm,80,256,64,1024,0,100,110
relu,160,128,16,0,0,120,125
gemm,80,256,64,1024,0,140,153
relu,160,128,16,0,1,140,150
"""


def rows(*texts):
    """Kernel, stream, begin and end, of one block of 8 warps an SM."""
    return [
        {
            "kernel": kernel,
            "stream": int(stream),
            "begin_us": float(begin),
            "end_us": float(end),
            "blocks": 80,
            "threads": 256,
        }
        for kernel, stream, begin, end in map(str.split, texts)
    ]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(LINES)
    return path


def test_a_file_is_a_run_of_one_operator_for_each_row(file):
    """Two alone, then both: the first starts 6 us after the host, which began at 94, so the last ends at 59."""
    found = workloads.read_rows(file, GPU)
    (run,) = found.runs
    assert (run.name, run.latency) == ("pair/rows", (59.0,))
    graph = run.program.graph
    assert graph.names == ("alone0", "alone1", "gemm2", "relu3")
    gemm, relu = (ss.Kernel(80, 256, 64, 1024),), (ss.Kernel(160, 128, 16),)
    assert [op.kernels for op in graph.operators] == [gemm, relu, gemm, relu]
    assert {(e.src, e.dst) for e in graph.edges} == {("alone0", "alone1"), ("alone1", "gemm2"), ("alone1", "relu3")}
    spans = " ".join(f"{s.op}/{s.stream}:{s.start:g}-{s.end:g}" for s in run.trace.spans)
    assert spans == "alone0/0:6-16 alone1/0:26-31 relu3/1:46-56 gemm2/0:46-59"
    assert found["gemm"].samples == (10.0, 13.0)


def test_it_is_read_on_the_command_line_and_kept_as_a_profile(file, tmp_path):
    found = workloads.read_spec(f"{file},cluster=v100")
    assert isinstance(found, Profile)
    found.save(tmp_path / "profile.json")
    again = Profile.load(tmp_path / "profile.json")
    assert again.to_dict() == found.to_dict()
    assert calibrate(None, again).parameters == calibrate(None, found).parameters
    assert workloads.from_spec(f"{file},cluster=v100").names == found.runs[0].program.graph.names


def test_sharing_is_fitted_to_rows():
    """8 warps an SM take 100 us alone and 139 beside as many, 10 % of which is believed to be interference.

    So 16 * 1.1 / 1.39 = 12.66 warps saturate it where blocks end together, not 24.
    """
    given = rows("a 0 0 100", "b 0 200 300", "a 0 400 539", "b 1 400 539")
    found = calibrate(None, workloads.read_rows(given, GPU.replace_devices(block_spread=0.0)))
    saturating = next(row for row in found.parameters if row.name == "saturating_warps")
    assert saturating.identified
    assert saturating.value == pytest.approx(12.66, rel=0.02)
    assert abs(found.residuals[0].error) < 0.05


def test_a_kernel_that_never_ran_alone_makes_a_run_in_place():
    """Of each operator the time in place is fitted; the two that overlap wait for the first."""
    given = rows("a 0 0 100", "a 0 110 210", "b 1 110 160")
    found = workloads.read_rows(given, GPU)
    fitted = calibrate(None, found)
    assert (found.runs[0].name, set(fitted.times)) == ("rows", {"a0", "a1", "b2"})
    assert fitted.residuals[0].error == pytest.approx(0.0, abs=0.05)


def test_what_is_issued_late_is_simulated_late():
    """Called for at 0 and at 50, calls of 4 us: each starts 6 us later, though nothing else keeps the second."""
    given = [row | {"issued_us": us} for row, us in zip(rows("a 0 6 106", "b 1 56 106"), (0.0, 50.0), strict=True)]
    program = workloads.read_rows(given, GPU).runs[0].program
    assert program.lead[program.action == LAUNCH].tolist() == [4.0, 50.0]
    trace = ss.simulate(program, GPU)
    assert sorted(trace.start[trace.kind == KERNEL].tolist()) == [6.0, 56.0]


def test_runs_and_devices_are_told_apart():
    given = [row | {"run": run, "device": device} for run in "xy" for device in (0, 1) for row in rows("a 0 0 100")]
    found = workloads.read_rows(given, "v100")
    assert ([run.name for run in found.runs], len(found.cluster)) == (["x", "y"], 2)
    assert found.runs[0].program.device[found.runs[0].program.action == LAUNCH].tolist() == [0, 1]


GIVEN = rows("a 0 0 100")[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "there are no rows"),
        ([GIVEN | {"end_us": ""}], "row 1: field 'end_us' is missing"),
        ([GIVEN, GIVEN | {"end_us": "soon"}], "row 2: end_us must be a number, not 'soon'"),
        ([GIVEN | {"stream": 0.5}], "row 1: stream must be a whole number from 0"),
        ([GIVEN | {"device": 4096}], "row 1: device must be a whole number from 0 to 4,095, not 4096"),
        ([GIVEN | {"blocks": 2**31}], "row 1: blocks must be a whole number from 0 to 2,147,483,647, not 2147483648"),
        ([GIVEN | {"begin_us": 200.0}], "row 1 ends before it begins"),
        ([3], "row 1 must have keys"),
        ([GIVEN | {"threads": 2048}], "threads"),
        ([GIVEN | {"device": 1}], "rows: "),
    ],
)
def test_rows_that_are_not_whole_are_refused(given, words):
    with pytest.raises(SimschedError, match=words):
        workloads.read_rows(given, GPU)


def test_rows_need_a_cluster(file):
    with pytest.raises(FormatError, match="give cluster="):
        workloads.read_rows(file)
