"""The variants of one graph against each other: compiled, measured in turns, and one of them kept."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hwbackend.torch.devices import line
from hwbackend.torch.inductor import doors
from hwbackend.torch.inductor.choice import PLAIN, KeptPlan, VariantChoice, choose, key_of, read_choice, remember
from hwbackend.torch.inductor.measure import Measure
from hwbackend.torch.inductor.options import CompileOptions
from hwbackend.torch.inductor.plan import (
    FusedKernel,
    StreamPlan,
    make_plan,
    repeat_plan,
    scheduled_by,
    sources,
    with_profile,
)
from hwbackend.torch.inductor.report import Report
from hwbackend.torch.nodes import is_weight
from simsched.base.errors import BackendError
from simsched.model.profile import Profile

_logger = logging.getLogger(__name__)

STREAMS: Final = "streams"
GRAPH: Final = "graph"
_SHARE: Final = 0.5  # of the budget, for each of two contests


class Contest:
    """The variants of one graph against each other."""

    def __init__(
        self,
        name: str,
        gm: Any,
        inputs: Sequence[Any],
        options: CompileOptions,
        patches: Mapping[str, Any],
        plain: Callable[..., Any],
        measure: Measure,
    ) -> None:
        self._gm = gm
        self._inputs = inputs
        self._options = options
        self._patches = patches
        self._measure = measure
        self._runs: dict[str, Callable[..., Any]] = {PLAIN: plain}
        self._report = Report(name)
        self._failures: dict[str, str] = {}
        self._plan: KeptPlan | None = None
        self._lacked_memory = False  # of the device, now; the next process may have more

    def decide(self) -> tuple[Callable[..., Any], Report]:
        """Return the fastest variant, with those that lost gone."""
        key = self._key()
        kept = None if key is None else read_choice(key)
        with self._measure.restoring(self._gm):
            if kept is not None and self._is_possible(kept) and self._compile(kept.name, kept.plan):
                return self._runs[kept.name], replace(self._report, choice=kept, remembered=True)
            choice = self._simplest()
            if choice.name != PLAIN:
                bold = f"{choice.name}+{STREAMS}"
            else:
                bold = f"{GRAPH}+{STREAMS}"
            if self._compile(bold):
                choice = self._boldest(choice, bold)
        if key is not None and not self._lacked_memory:
            remember(key, choice)
        return self._runs[choice.name], replace(self._report, choice=choice, failures=self._failures)

    def _key(self) -> str | None:
        """Return the name of the choice for later processes; None where the scheduler may be another one then."""
        options = self._options
        if not isinstance(options.scheduler, str) or ":" in options.scheduler:
            return None
        calibration = None if options.calibration is None else options.calibration.to_dict()
        values = {**vars(options), "calibration": calibration}
        return key_of((self._gm.code, *map(_form, self._inputs), values, *self._measure.identity()))

    def _is_possible(self, kept: VariantChoice) -> bool:
        """Return whether a choice from a file is one of this graph's variants, with a plan where it has streams."""
        simple = [PLAIN, *self._simple()]
        if kept.plan is None:
            return kept.name in simple
        if len(set(kept.plan.streams)) > self._options.streams:
            return False
        return kept.name in [f"{name}+{STREAMS}" for name in simple[1:]]

    def _simplest(self) -> VariantChoice:
        """Return the choice among the variants without streams."""
        return self._contest([PLAIN, *(name for name in self._simple() if self._compile(name))])

    def _boldest(self, simple: VariantChoice, bold: str) -> VariantChoice:
        """Return the choice between the best variant without streams and the one with them.

        Kernels were profiled in between, after which calls may take longer: streams have to beat the time from before,
        too.
        """
        last = self._contest([simple.name, bold])
        times = {**simple.times, **last.times, simple.name: min(simple.times[simple.name], last.times[simple.name])}
        noise = {**simple.noise, **last.noise}
        is_faster = last.name == bold and times[simple.name] - times[bold] > noise[bold]
        if is_faster:
            return replace(last, times=times, noise=noise, plan=self._plan)
        return replace(last, name=simple.name, times=times, noise=noise)

    def _simple(self) -> list[str]:
        names = [GRAPH]
        if any("conv" in str(node.target) for node in self._gm.graph.nodes) or _has_convolutions(self._gm):
            names.append(f"{GRAPH}+channels_last")
        if self._options.freezing:
            names.append(f"{GRAPH}+freezing")
        return names

    def _contest(self, names: Sequence[str]) -> VariantChoice:
        with doors.outside_dynamo():  # compiled within it, as Inductor asks it which inputs stay where they are
            for name in names:
                self._measure.warm(self._runs[name])
            budget = _SHARE * self._options.budget_s
            return choose(names, lambda name: self._measure.time(name, self._runs[name]), budget)

    def _compile(self, name: str, kept: KeptPlan | None = None) -> bool:
        """Compile a variant, with the streams of a kept plan where there is one, or note why there is none."""
        if name in self._runs:
            return True
        try:
            graph, patches = self._graph_of(name)
            patches |= doors.CAPTURED
            self._report = Report(self._report.name)
            if STREAMS in name.split("+"):
                patches |= {**doors.ORDERED, "_post_fusion_custom_pass": self._pass(name, kept)}
            run = doors.compile_inductor(graph, self._inputs, patches)
            if STREAMS in name.split("+") and self._report.streams < 2:
                raise BackendError("the schedule is one stream")
        except Exception as error:
            _logger.debug("%s", name, exc_info=error)
            self._failures[name] = line(error)
            self._lacked_memory |= "out of memory" in str(error)
            return False
        self._runs[name] = run
        self._failures.pop(name, None)  # of a kept plan that did not fit
        return True

    def _graph_of(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Return a copy of the graph as a variant has it, and Inductor's settings without CUDA graphs."""
        parts = name.split("+")
        patches = dict(self._patches)
        if "channels_last" in parts:
            patches |= doors.CHANNELS_LAST
        if "freezing" not in parts:
            return doors.copy_graph(self._gm), patches
        patches |= doors.FREEZING
        return doors.frozen(self._gm, self._inputs, list(map(is_weight, self._inputs))), patches

    def _pass(self, name: str, kept: KeptPlan | None) -> Callable[[Any], Any]:
        options = self._options
        if kept is None:
            target = options.calibration or self._measure.target()
            planner = scheduled_by(options.scheduler, target, options.streams)
            alone = self._profile_kernels(name)
        else:
            planner = repeat_plan(kept.kernels, kept.streams)
            alone = None
        limit = options.memory_limit
        if limit is None:
            limit = self._measure.free_memory() / 2

        def plan(kernels: Sequence[FusedKernel], memory: Any) -> StreamPlan:
            if alone is not None:
                kernels = self._add_times(kernels, *alone)
            made = make_plan(kernels, memory, planner)
            if made.peak > limit:
                self._lacked_memory |= options.memory_limit is None
                raise BackendError(
                    f"intermediate values need {made.peak:.0f} bytes on streams, more than {limit:.0f}; raise "
                    "memory_limit, or lower streams"
                )
            rows = [i for i in made.order if kernels[i].launches]
            if kept is None:
                timed = sources(kernels)
            else:
                timed = dict(kept.timed)
            names = tuple(kernels[i].name for i in rows)
            self._plan = KeptPlan(names, tuple(made.stream[i] for i in rows), timed)
            return made

        return doors.ordered_pass(plan, self._note_plan)

    def _profile_kernels(self, name: str) -> tuple[Sequence[FusedKernel], Profile] | None:
        """Return the kernels of a variant in Inductor's order without capture, and their profile; or say why not."""
        seen: list[tuple[Sequence[FusedKernel], Mapping[str, Sequence[str]]]] = []
        try:
            graph, patches = self._graph_of(name)
            patches |= {**doors.ORDERED, "_post_fusion_custom_pass": doors.marked_pass(lambda *row: seen.append(row))}
            run = doors.compile_inductor(graph, self._inputs, patches)
            ((kernels, functions),) = seen
            with doors.outside_dynamo():
                self._measure.warm(run)
                return kernels, self._measure.profile(run, functions)
        except Exception as error:  # estimates do as well
            _logger.debug("%s", name, exc_info=error)
            self._report = replace(self._report, unmeasured=line(error))
            return None

    def _add_times(
        self, kernels: Sequence[FusedKernel], profiled: Sequence[FusedKernel], profile: Profile
    ) -> Sequence[FusedKernel]:
        """Return kernels with their measured times, if they are those that were profiled."""
        if list(kernels) == list(profiled):
            return with_profile(kernels, profile)
        self._report = replace(self._report, unmeasured="Inductor made other kernels when it was profiled")
        return kernels

    def _note_plan(self, plan: StreamPlan, kernels: Sequence[FusedKernel]) -> None:
        assert self._plan is not None
        self._report = replace(
            self._report,
            kernels=sum(kernel.launches for kernel in kernels),
            streams=plan.n_streams,
            waits=plan.n_waits,
            peak=plan.peak,
            plain_peak=plan.plain_peak,
            timed=self._plan.timed,
        )


def _form(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device.type}"


def _has_convolutions(gm: Any) -> bool:
    return any("Conv" in type(part).__name__ for part in gm.modules())
