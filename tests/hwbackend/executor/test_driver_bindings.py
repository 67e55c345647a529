"""The names, fields and layouts of cuda-bindings that are used, against the package itself where it is installed."""

import ctypes
import re
from pathlib import Path

import pytest

driver = pytest.importorskip("cuda.bindings.driver")

from fake_driver import ATTRIBUTES, FIELDS, CopyParameters, FakeDriver, FillParameters, KernelParameters, LaunchConfig  # noqa: E402
from fake_probes import FakeProbeDriver  # noqa: E402

import hwbackend  # noqa: E402 - the rest is for those who have the bindings
from hwbackend.cuda import nodes, packing  # noqa: E402

FILES = ("cuda/nodes.py", "cuda/packing.py", "cuda/driver.py", "torch/donor.py", "contact/probes.py")
NEWER = {"cuGraphNodeGetToolsId"}  # of CUDA 13; there is another way without it
OLDER = {
    "cuGraphGetEdges_v2",
    "cuStreamGetCaptureInfo_v3",
}  # of CUDA 12, where names without a number have other results


def used_names():
    """Names after ``driver.`` in the source, and those that are asked for with `getattr`."""
    found = set()
    for name in FILES:
        source = Path(hwbackend.__path__[0], name).read_text()
        found |= set(re.findall(r"driver\.((?:cu|CU)\w+)", source))
        found |= set(re.findall(r'"((?:cuGraph|cuStream)\w+)"', source))
    found |= {f"cuGraph{verb}Dependencies" for verb in ("Add", "Remove")}
    return found | {f"cuGraph{kind.title()}NodeGetParams" for kind in ("KERNEL", "MEMCPY", "MEMSET")}


def test_every_name_is_there():
    names = used_names()
    assert {"cuGraphClone", "cuGraphInstantiate", "cuStreamCreateWithPriority", "cuGreenCtxCreate"} <= names
    missing = {name for name in names - NEWER - OLDER - {"cuStreamSynchronize"} if not hasattr(driver, name)}
    assert missing == set()
    assert all(hasattr(driver, name) or hasattr(driver, name.rpartition("_v")[0]) for name in OLDER)


def test_a_fake_has_no_calls_of_its_own():
    fakes = {**vars(FakeDriver), **vars(FakeProbeDriver)}
    names = {name for name in fakes if name.startswith(("cu", "CU")) and name not in {"cuda"}}
    assert {name for name in names - NEWER if not hasattr(driver, name)} == set()


@pytest.mark.parametrize(
    ("struct", "fields"),
    [
        ("CUDA_KERNEL_NODE_PARAMS", KernelParameters._fields),
        ("CUDA_MEMCPY3D", CopyParameters._fields),
        ("CUDA_MEMSET_NODE_PARAMS", FillParameters._fields),
        ("CUlaunchConfig", (*FIELDS, "hStream", "attrs", "numAttrs")),
        ("CUlaunchAttribute", ("id", "value")),
        ("CUkernelNodeAttrValue", ("priority", "clusterDim", "cooperative", "programmaticStreamSerializationAllowed")),
        ("CUkernelNodeAttrValue", [field.partition(".")[0] for field in nodes._KEPT_WITH.values()]),
        ("CUgraphEdgeData", ("type", "from_port", "to_port")),
        ("CUdevResource", ("sm",)),
    ],
)
def test_structures_have_the_fields(struct, fields):
    made = getattr(driver, struct)()
    assert set(fields) - set(dir(made)) == set()


def test_attributes_are_0_where_they_are_not_set():
    value = driver.CUkernelNodeAttrValue()
    for path in (*nodes._KEPT_WITH.values(), *packing._CARRIED.values()):
        field = value
        for part in path.split("."):
            field = getattr(field, part)
        assert int(field) == 0
    assert all(hasattr(driver.CUkernelNodeAttrID, f"CU_LAUNCH_ATTRIBUTE_{name}") for name in ATTRIBUTES)
    assert int(driver.CUgraphEdgeData().type) == 0
    assert int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) == nodes.NODE_PRIORITIES
    assert all(hasattr(driver.CUgraphNodeType, f"CU_GRAPH_NODE_TYPE_{name}") for name in nodes.MOVABLE)
    assert int(driver.CUresult.CUDA_ERROR_INVALID_VALUE) == nodes._UNKNOWN


def test_a_launch_config_is_in_memory_as_packed_calls_need_it():
    """Also with an attribute: its number, and the dimensions of a cluster eight bytes behind."""
    config = driver.CUlaunchConfig()
    for i, name in enumerate(FIELDS):
        setattr(config, name, i + 1)
    config.hStream = 77
    attribute, value = driver.CUlaunchAttribute(), driver.CUkernelNodeAttrValue()
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = 2, 1, 1
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value = value
    config.attrs, config.numAttrs = [attribute], 1
    seen = LaunchConfig.from_address(int(config.getPtr()))
    assert [getattr(seen, name) for name in FIELDS] == [1, 2, 3, 4, 5, 6, 7]
    assert (seen.hStream, seen.numAttrs) == (77, 1)
    words = (ctypes.c_uint32 * 5).from_address(seen.list)
    assert words[0] == int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    assert list(words[2:]) == [2, 1, 1]
