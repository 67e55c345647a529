"""SRU: dependencies between steps."""

from workloads import load


def test_states_of_sru_form_a_chain_and_outputs_do_not():
    """The forget gate is read twice by a cell that has a state before it: for the candidate's share and the state's,
    a token of 1024 fp32 each.
    """
    graph = load("rnntc_sru", layers=1, sequence_length=3)
    reads = {name: [e.src for e in graph.edges if e.dst == name] for name in graph.names}
    assert reads["layer0.step0.state"] == ["layer0.forget", "layer0.candidate"]
    assert reads["layer0.step1.state"] == ["layer0.forget", "layer0.candidate", "layer0.forget", "layer0.step0.state"]
    assert reads["layer0.step2.output"] == ["layer0.step2.state", "layer0.reset", "layer0.reset"]
    assert {e.nbytes for e in graph.edges if e.dst == "layer0.step1.state"} == {4096}
    assert graph.depth == 7  # gates, three states, output, join, classifier
