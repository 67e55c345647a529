"""ResNeXt: the branches of its blocks."""

from workloads.models.resnet import resnext50


def test_branches_of_resnext():
    """A 3x3 of 32 groups is 32 convolutions of 1/32 of the channels: as many weights, 32 branches and one beside."""
    grouped, branches = resnext50(), resnext50(form="branches")
    assert (branches.weight_nbytes.sum(), branches.width) == (grouped.weight_nbytes.sum(), 33)
    assert grouped["layer1.0.conv2"].attributes["groups"] == 32
    assert branches["layer2.1.branch0.conv2"].flops == 2 * 784 * 9 * 8 * 8
