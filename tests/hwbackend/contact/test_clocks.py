"""The condition of a GPU as NVML or nvidia-smi reports it, on machines where they know less than usual."""

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from hwbackend.contact import clocks
from hwbackend.contact.clocks import DeviceState, state_of_gpu


class Nvml(ModuleType):
    """NVML of a machine with GPUs whose SM clocks are 100 MHz times one more than their number."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        """As NVML raises it."""

    def __init__(self, processes=(7,), unknown=()):
        super().__init__("pynvml")
        self._processes, self._unknown = processes, unknown
        self._uuids = {"GPU-a": 0, "GPU-b": 1}

    def nvmlInit(self):
        """Do nothing."""

    def nvmlDeviceGetHandleByIndex(self, index):
        if index not in range(4):
            raise self.NVMLError("no such GPU")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return self._uuids[uuid]

    def _known(self, name):
        if name in self._unknown:
            raise self.NVMLError("not supported")

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        return 100 * (1 + gpu) if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        self._known("reasons")
        return 0x5

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        return 40

    def nvmlDeviceGetPowerUsage(self, gpu):
        self._known("power")
        return 300_000

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        self._known("processes")
        return [SimpleNamespace(pid=pid) for pid in self._processes]


@pytest.fixture
def on(monkeypatch):
    """Have an NVML be installed, and CUDA see some GPUs."""

    def put(nvml, visible=None):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return put


@pytest.mark.parametrize(("visible", "clock"), [(None, 100.0), ("2,0", 300.0), ("GPU-b", 200.0), ("", 100.0)])
def test_the_condition_is_that_of_the_gpu_that_cuda_sees(on, visible, clock):
    on(Nvml(), visible)
    assert state_of_gpu() == DeviceState(clock, 2619.0, ("sw_power_cap",), 40.0, 300.0, 0)


@pytest.mark.parametrize(("processes", "others"), [((), 0), ((4242,), 0), ((4242, 4243), 1)])
def test_this_process_is_not_another_one_whatever_its_number_is(on, processes, others):
    """In a container the driver knows it by the number that it has on the host."""
    on(Nvml(processes))
    assert state_of_gpu().processes == others


def test_what_a_virtual_gpu_does_not_report_costs_nothing_else(on):
    on(Nvml(unknown=("power", "reasons", "processes")))
    assert state_of_gpu() == DeviceState(100.0, 2619.0, (), 40.0, None, None)
    on(Nvml(), "9")
    assert state_of_gpu() is None


@pytest.mark.parametrize("known", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"])
def test_nvidia_smi_is_asked_by_either_name_of_the_reasons(monkeypatch, known):
    """A field that it does not know ends it with an error."""

    def run(words, **_options):
        asked = words[-2].partition("=")[2].split(",")
        if asked[-1] != known:
            raise subprocess.CalledProcessError(2, words)
        assert words[1:3] == ["-i", "1"]
        return SimpleNamespace(stdout="1980, 2619, 41, [N/A], 0x0000000000000020\n")

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(clocks.shutil, "which", lambda name: name)
    monkeypatch.setattr(clocks.subprocess, "run", run)
    assert state_of_gpu() == DeviceState(1980.0, 2619.0, ("sw_thermal_slowdown",), 41.0, None)
