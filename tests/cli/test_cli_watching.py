"""What is said of a study while it runs, by a clock that stands still unless it is told."""

from simsched.cli.progress import Pace, lines, watched


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_pace():
    """10 rows were there before; then 20 in 4 s are 5 rows/s, and the 70 that are left take 14 s.

    Of 110 rows, then of 7,330, ten in 10 s: 100 are 1 min 40 s, 7,320 are 2 h 02 min.
    """
    clock = Clock()
    pace, slow = Pace(clock), Pace(clock)
    assert (pace.text(10, 100, 0), slow.text(0, 1, 0)) == ("10 of 100 rows", "0 of 1 rows")
    assert pace.text(11, 100, 0) == "11 of 100 rows"  # the clock has not moved
    clock.now += 4
    assert pace.text(30, 100, 0) == "30 of 100 rows, 5 rows/s, 14 s left"
    assert pace.text(100, 100, 2) == "100 of 100 rows, 22.5 rows/s, 2 without a result"
    assert pace.text(10, 100, 1) == "10 of 100 rows, 1 without a result"
    clock.now += 6
    assert slow.text(10, 110, 0).endswith(", 1 rows/s, 1 min 40 s left")
    assert slow.text(10, 7330, 0).endswith(", 1 rows/s, 2 h 02 min left")


def test_a_line_a_minute_and_one_at_the_end():
    """Told every 25 s: lines at 75 s and 150 s, and at 175 s, when all is done."""
    clock, written = Clock(), []
    tell = lines("example", written.append, clock)
    for done in range(1, 8):
        clock.now = 100.0 + 25 * done
        tell(done, 7, 0)
    assert written == [
        "example: 3 of 7 rows, 0.04 rows/s, 1 min 40 s left",
        "example: 6 of 7 rows, 0.04 rows/s, 25 s left",
        "example: 7 of 7 rows, 0.04 rows/s",
    ]


def test_lines_go_to_stderr_where_there_is_no_terminal(capsys):
    with watched("example") as tell:
        tell(0, 3, 0)
        tell(3, 3, 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("example: 3 of 3 rows")
    assert err.endswith(", 1 without a result\n")
