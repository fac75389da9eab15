"""HTTP/2 streams as the flow treats them: whatever comes in whatever order ends in commands, never in an exception."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.egress import commands as c
from sandboxd.egress.h2_flow import H2Flow
from sandboxd.egress.injection import Guard
from sandboxd.egress.ledger import Ledger
from sandboxd.egress.vault import Vault
from sandboxd.egress.wire.http2 import Side
from sandboxd.policy.decide import decide
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.requests import ConnectRequest, Target
from tests.kit.playbook import SUBJECT, allow, policy

NAME = canonical_host("api.example.com")
RULES = policy(
    allow({"hosts": [NAME], "ports": [443]}, "tls", tls={"handling": "intercept"}, http=[{"paths": ["/open/**"]}])
)
TARGET = Target(NAME, None, 443)


class Conversation:
    """A flow between a client and a server that are told everything at once."""

    def __init__(self) -> None:
        ids = (f"id{n}" for n in itertools.count())
        ledger = Ledger(TARGET, SUBJECT, lambda: next(ids), lambda: 0.0)
        decision = decide(RULES, ConnectRequest(TARGET))
        ledger.decision(decision)
        self.flow = H2Flow(RULES, TARGET, NAME, ledger, decision, Guard(Vault()))
        self.client, self.server = Side(client=True), Side(client=False)
        self.records: list[str] = []
        self.closed = False
        self.at_client: list[object] = []
        self.at_server: list[object] = []
        self.perform(self.flow.start())

    def perform(self, commands: list[c.Command]) -> None:
        for command in commands:
            assert not self.closed, "nothing follows Close"
            match command:
                case c.ToClient(data):
                    self.at_client += self.client.feed(data)
                case c.ToUpstream(data):
                    self.at_server += self.server.feed(data)
                case c.Record(event):
                    self.records.append(f"{event.event} {event.verdict or event.detail.get('how')}")
                case c.Close():
                    self.closed = True
                case _:
                    pass

    def tell(self, event: c.InputEvent) -> None:
        if not self.closed:
            self.perform(self.flow.handle(event))

    def settle(self) -> None:
        """Until nobody has anything to say."""
        while not self.closed:
            out, back = self.client.output(), self.server.output()
            if not out and not back:
                return
            if out:
                self.tell(c.ClientData(out))
            if back:
                self.tell(c.UpstreamData(back))

    def ask(self, path: bytes, *, end: bool = True) -> int:
        number = self.client.h2.get_next_available_stream_id()
        fields = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", NAME.encode()), (b":path", path)]
        self.client.h2.send_headers(number, fields, end_stream=end)
        return number


def names(events: list[object]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_server_that_takes_few_streams_is_not_asked_for_more() -> None:
    talk = Conversation()
    talk.settle()
    talk.server.h2.update_settings({3: 1})  # MAX_CONCURRENT_STREAMS
    talk.settle()
    talk.ask(b"/open/a")
    second = talk.ask(b"/open/b")
    talk.settle()
    assert names(talk.at_server).count("RequestReceived") == 1
    (reset,) = [event for event in talk.at_client if type(event).__name__ == "StreamReset"]
    assert (reset.stream_id, int(reset.error_code)) == (second, 7)  # type: ignore[attr-defined]  # REFUSED_STREAM
    assert talk.records == ["request allow"]


def test_what_a_closed_window_holds_back_is_bounded() -> None:
    talk = Conversation()
    talk.settle()
    number = talk.ask(b"/open/a", end=False)
    talk.settle()
    sent = 0
    while (room := talk.client.h2.local_flow_control_window(number)) > 0:
        piece = bytes(min(room, 16384))
        talk.client.h2.send_data(number, piece)
        sent += len(piece)
        talk.settle()
    # The server acknowledges nothing: its own window, and as much again that waits in the flow.
    assert sent <= 2 * (256 << 10)


actions = st.lists(
    st.sampled_from(
        [
            "ask", "ask denied", "ask open", "data", "end", "reset", "answer", "answer end", "server data",
            "server end", "server reset", "server trailers", "server goaway", "ping", "settle", "policy",
        ]
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(actions, st.randoms(use_true_random=False))
def test_laws(happened: list[str], random: object) -> None:
    talk = Conversation()
    talk.settle()
    open_: list[int] = []
    for action in happened:
        try:
            act(talk, action, open_, random)
        except Exception as error:  # the peers of the test may not do everything at any time
            if not type(error).__module__.startswith("h2."):
                raise
        talk.settle()
    talk.tell(c.ClientLost())
    assert talk.closed
    assert sum(record.startswith("close") for record in talk.records) == 1
    asked = names(talk.at_server).count("RequestReceived")
    assert asked <= talk.records.count("request allow")


def act(talk: Conversation, action: str, open_: list[int], random: object) -> None:
    pick = random.choice  # type: ignore[attr-defined]
    theirs, mine = list(talk.server.h2.streams), open_
    if not (theirs if "server" in action or "answer" in action else mine) and not action.startswith(("ask", "ping")):
        return
    match action:
        case "ask":
            talk.ask(b"/open/x")
        case "ask denied":
            talk.ask(b"/closed")
        case "ask open":
            open_.append(talk.ask(b"/open/y", end=False))
        case "data":
            talk.client.h2.send_data(pick(mine), b"x" * 100)
        case "end":
            talk.client.h2.end_stream(pick(mine))
        case "reset":
            talk.client.h2.reset_stream(pick(mine), 8)
        case "answer":
            talk.server.h2.send_headers(pick(theirs), [(b":status", b"200")])
        case "answer end":
            talk.server.h2.send_headers(pick(theirs), [(b":status", b"204")], end_stream=True)
        case "server data":
            talk.server.h2.send_data(pick(theirs), b"y" * 100)
        case "server end":
            talk.server.h2.end_stream(pick(theirs))
        case "server reset":
            talk.server.h2.reset_stream(pick(theirs), 2)
        case "server trailers":
            talk.server.h2.send_headers(pick(theirs), [(b"x", b"y")], end_stream=True)
        case "ping":
            talk.client.h2.ping(b"12345678")
        case _:
            pass
