"""Laws that hold for every flow, whatever happens in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.audit.events import Subject
from sandboxd.egress import commands as c
from sandboxd.egress.flow import Flow
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.requests import Target
from sandboxd.reasons import Reason
from tests.kit import client_hellos
from tests.kit.playbook import allow, policy

NAME = "api.example.com"
RULES = policy(
    allow({"hosts": [NAME], "ports": [443]}, "tls"),
    allow({"hosts": [NAME], "ports": [80]}, "http"),
    allow({"hosts": [NAME], "ports": [22]}, "tcp"),
)
PUBLIC = bytes((8, 8, 8, 8))
HELLO = client_hellos.real(NAME)
GET = f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
PIECES = [HELLO, HELLO[:30], HELLO[30:], GET, GET[:9], GET[9:], GET.replace(b"api", b"evil"), b"SSH-2.0-x\r\n", b"\0"]

events = st.one_of(
    st.sampled_from(PIECES).map(c.ClientData),
    st.binary(min_size=1, max_size=40).map(c.ClientData),
    st.sampled_from([(PUBLIC,), (bytes(4), PUBLIC), (bytes((127, 0, 0, 1)),), ()]).map(c.Resolved),
    st.sampled_from(
        [
            c.ClientEof(),
            c.ClientLost(),
            c.ResolveFailed("x"),
            c.Connected(PUBLIC),
            c.ConnectFailed(Reason.CONNECT_FAILED, "x"),
            c.UpstreamData(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
            c.UpstreamData(b"\0rubbish"),
            c.UpstreamEof(),
            c.UpstreamLost(),
            c.TimedOut("peek"),
            c.TimedOut("head"),
            c.TimedOut("idle"),
            c.TimedOut("words"),
            c.SpliceEnded(1, 2, "eof"),
            c.SpliceEnded(1, 2, "idle"),
            c.Revoked(Reason.POLICY_REVOKED),
        ]
    ),
)


class Performer:
    """Performs commands as the pump would, and holds the laws."""

    def __init__(self, port: int, host: str) -> None:
        numbers = iter(range(10**6))
        self.flow = Flow(
            RULES,
            Target(canonical_host(host), None, port),
            Subject("t", "a", "s", "w"),
            lambda: f"id{next(numbers)}",
            lambda: 0.0,
            lambda _: False,
        )
        self.asked: set[type] = set()
        self.connected = self.splicing = self.closed = False
        self.verdicts: list[str] = []
        self.closes = 0

    def fits(self, event: c.InputEvent) -> bool:
        """Whether a pump could say this now."""
        if isinstance(event, c.Resolved | c.ResolveFailed):
            return c.Resolve in self.asked
        if isinstance(event, c.Connected | c.ConnectFailed):
            return c.Dial in self.asked
        if isinstance(event, c.SpliceEnded):
            return self.splicing
        if isinstance(event, c.UpstreamData | c.UpstreamEof | c.UpstreamLost):
            return self.connected and not self.splicing
        if isinstance(event, c.ClientData | c.ClientEof):
            return not self.splicing and not self.asked
        return True

    def tell(self, event: c.InputEvent) -> None:
        if isinstance(event, c.Connected):
            self.connected = True
        self.asked.clear()
        self.perform(self.flow.handle(event))

    def perform(self, commands: list[c.Command]) -> None:
        for command in commands:
            assert not self.closed, "nothing follows Close"
            match command:
                case c.Record(event):
                    if event.event in ("decision", "request"):
                        self.verdicts.append(f"{event.event} {event.verdict}")
                    self.closes += event.event == "close"
                case c.Resolve() | c.Dial():
                    self.asked.add(type(command))
                    if isinstance(command, c.Dial):
                        assert self.allowed(), "no packet leaves without an allowing record"
                        assert set(command.addresses) <= {PUBLIC}
                case c.ToUpstream():
                    assert self.connected
                    assert self.allowed()
                case c.Splice():
                    assert self.connected
                    assert self.allowed()
                    self.splicing = True
                case c.Close():
                    self.closed = True
                case _:
                    pass

    def allowed(self) -> bool:
        return self.verdicts != [] and all(verdict.endswith("allow") for verdict in self.verdicts)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([443, 80, 22, 8080]), st.sampled_from([NAME, "evil.example.com"]), st.lists(events, max_size=25))
def test_laws(port: int, host: str, happened: list[c.InputEvent]) -> None:
    performer = Performer(port, host)
    performer.perform(performer.flow.start())
    for event in happened:
        if performer.fits(event):
            performer.tell(event)
    if not performer.closed:
        performer.tell(c.Revoked(Reason.POLICY_REVOKED))
    assert performer.closed
    assert performer.flow.over
    assert performer.closes == 1
    assert performer.verdicts[0].startswith("decision")
    assert sum(verdict.startswith("decision") for verdict in performer.verdicts) == 1
