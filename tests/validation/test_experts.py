"""Mixtures of experts: published times hold the rules of libraries."""

import simsched as ss
from simsched.model import operator_times
from simsched.model.launches import launches_of
from validation.experts import DECODE, MOST, cases, mixtures
from validation.h100.figures import mean_error
from workloads.llm import llm

H100 = ss.Cluster.preset("h100").devices[0]


def orderings(batches):
    graphs = [llm("qwen3-30b-a3b", batch=batch, layers=1) for batch in batches]
    return [graph["layer0.experts.order"] for graph in graphs]


def test_published_mixtures_that_were_not_fitted_take_the_times_that_they_were_measured_with():
    held = [case for published in mixtures() if not published["fitted"] for case in cases(published)]
    decode = [case for case in held if int(case.name) <= DECODE]
    assert len(decode) == 44
    assert mean_error(decode) < 0.1
    assert mean_error(held) < MOST


def test_ordering_tokens_by_experts_is_two_kernels_of_a_block_and_takes_longer_for_more_tokens():
    few, many, most = orderings((1, 1024, 16384))
    for op in (few, many, most):
        launches = launches_of(op, H100)
        assert [launch.blocks for launch in launches] == [1, 1]
    graph = ss.OpGraph([few])
    assert 10.0 < operator_times(graph, H100)[0] < 12.0
    times = [sum(launch.time for launch in launches_of(op, H100)) for op in (few, many, most)]
    assert times == sorted(times)
    # 0.67 cycles for each of the further pairs of a token and one of its eight experts
    further = (16384 - 1024) * 8 * 0.67 / H100.clock
    assert 0.9 * further < times[2] - times[1] < 1.4 * further
