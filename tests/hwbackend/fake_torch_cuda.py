"""A CUDA that only orders: streams run what was issued to them as late and in as odd an order as events allow.

It stands in for `hwbackend.torch_hosts.TorchCuda` and keeps the rules of capture: while a graph is captured nobody may
wait for the device, make a stream, an event or a graph, or issue to a stream that has not joined; at its end every
stream that joined must have been joined by the first.
"""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace


class FakeStream:
    def __init__(self, device, priority):
        self.device, self.priority = device, priority
        self.queue = []


class RuleError(RuntimeError):
    """A rule of capture was broken."""


class FakeCuda:
    """`device_order` says which stream goes first where several could: +1 those made first, -1 those made last."""

    def __init__(self, device_order=1):
        self.order = device_order
        self.streams, self.current = [], None
        self.passed, self.clock = set(), 0.0
        self.n_tokens = 0
        self.capturing = None  # what each stream was given, if a graph is captured
        self.joined = {}  # work that each stream of the capture comes behind
        self.event_knows = {}
        self.calls = []

    def forbidden(self, what):
        self.calls.append(what)
        if self.capturing is not None:
            raise RuleError(f"{what} while a graph is captured")

    def stream(self, device, priority):
        self.forbidden("stream")
        self.streams.append(FakeStream(device, priority))
        return self.streams[-1]

    def event(self, *, timing=False):
        self.forbidden("event")
        # the token is of the last record as issued: None, if there was none, and then waits do nothing
        return SimpleNamespace(timing=timing, token=None, time=None)

    @contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def work(self, action):
        """Issue something to the current stream."""
        self.calls.append("work")
        self.give(self.current, ("work", action, len(self.calls)))

    def give(self, stream, item):
        if self.capturing is None:
            stream.queue.append(item)
            return
        if stream not in self.capturing:
            raise RuleError("work on a stream that is not part of the capture")
        self.capturing[stream].append(item)
        if item[0] == "work":
            self.joined[stream] = self.joined[stream] | {item[2]}

    def record(self, event, stream):
        self.calls.append("record")
        self.n_tokens += 1
        event.token = (self.n_tokens, self.capturing is not None)
        self.give(stream, ("record", event, event.token))
        if self.capturing is not None:
            self.event_knows[event.token] = self.joined[stream]

    def wait(self, stream, event):
        self.calls.append("wait")
        if event.token is None:
            return
        if self.capturing is not None:
            if event.token not in self.event_knows:
                raise RuleError("a wait for an event that was recorded outside the capture")
            self.capturing.setdefault(stream, [])
            self.joined[stream] = self.joined.get(stream, frozenset()) | self.event_knows[event.token]
        elif event.token[1]:
            raise RuleError("a wait for an event that was captured")
        self.give(stream, ("wait", event, event.token))

    def is_done(self, stream_or_event):
        self.forbidden("query")
        self.step({stream: stream.queue for stream in self.streams}, self.passed)
        if isinstance(stream_or_event, FakeStream):
            return not stream_or_event.queue
        return stream_or_event.token is None or stream_or_event.token in self.passed

    def synchronize(self, device):
        self.forbidden("synchronize")
        self.drain({stream: stream.queue for stream in self.streams}, self.passed)

    def elapsed(self, start, end):
        self.forbidden("elapsed")
        assert start.timing
        assert end.timing
        return end.time - start.time

    def graph(self):
        self.forbidden("graph")
        return SimpleNamespace(queues=None)

    @contextmanager
    def capture(self, graph, stream):
        self.synchronize(stream.device)
        self.capturing, self.joined, self.event_knows = {stream: []}, {stream: frozenset()}, {}
        try:
            with self.on(stream):
                yield
            if set().union(*self.joined.values()) - self.joined[stream]:
                raise RuleError("a stream was not joined at the end of the capture")
            graph.queues = self.capturing
        finally:
            self.capturing = None

    def launch(self, graph):
        self.forbidden("launch")
        queues = graph.queues
        self.give(self.current, ("work", lambda: self.drain({s: list(q) for s, q in queues.items()}, set()), 0))

    def current_stream(self, device):
        return self.streams[0]

    def keep_for(self, tensor, stream):
        self.calls.append("keep")

    def mark(self, name):
        return nullcontext()

    def drain(self, queues, passed):
        while any(queues.values()):
            if not self.step(queues, passed):
                raise RuleError("every stream waits")

    def step(self, queues, passed):
        """Run the next item of the first stream that has one ready."""
        for queue in list(queues.values())[:: self.order]:
            while queue and queue[0][0] == "wait" and queue[0][2] in passed:
                queue.pop(0)
            if queue and queue[0][0] != "wait":
                kind, what, token = queue.pop(0)
                self.clock += 1.0
                if kind == "record":
                    what.time = self.clock
                    passed.add(token)
                else:
                    what()
                return True
        return not any(queues.values())
