"""HTTP/2 inside intercepted TLS: every stream decided, headers written anew, one upstream stream each (RFC 9113). Pure.

A denied stream is answered by itself; the others go on. What one side may not send yet waits here, and the other side
is given no more room meanwhile, so that what is held is bounded by the windows. Not here: frames (`wire.http2`), fields
(`wire.http2_head`). Called by `intercept_flow`.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    InformationalResponseReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from sandboxd import limits
from sandboxd.egress.commands import (
    ClientData,
    ClientEof,
    ClientLost,
    Close,
    Command,
    InputEvent,
    StartTimer,
    TimedOut,
    ToClient,
    ToUpstream,
    UpstreamData,
    UpstreamEof,
    UpstreamLost,
)
from sandboxd.egress.denials import denial_body
from sandboxd.egress.h2_streams import Stream, Way, pass_on, reset
from sandboxd.egress.http_flow import IDLE_TIMER
from sandboxd.egress.injection import Admitted, Guard
from sandboxd.egress.ledger import Ledger
from sandboxd.egress.wire.http2 import Broken, GoingAway, Side, SideEvent, goaway
from sandboxd.egress.wire.http2_head import parse_request, parse_response, parse_trailers, request_headers
from sandboxd.egress.wire.http_messages import HeadError, RequestHead
from sandboxd.policy.decide import decide
from sandboxd.policy.matching import CompiledEgress
from sandboxd.policy.requests import Decision, Host, HttpRequest, Moment, Target
from sandboxd.reasons import Layer, Reason, Verdict

_SCHEME = b"https"
_PORT = 443


class H2Flow:
    """The streams of one connection that `decision` allowed. `broken`: why there is no upstream, if there is none."""

    def __init__(
        self,
        policy: CompiledEgress,
        target: Target,
        host: Host,
        ledger: Ledger,
        decision: Decision,
        guard: Guard,
        tools: frozenset[str] = frozenset(),
        broken: Decision | None = None,
    ) -> None:
        self.policy = policy
        self.tools = tools
        self._target = target
        self._authority = (host if target.port == _PORT else f"{host}:{target.port}").encode("ascii")
        self._ledger = ledger
        self._decision = decision
        self._guard = guard
        self._broken = broken
        self._client = Side(client=False)
        self._upstream = Side(client=True) if broken is None else None
        self._streams: dict[int, Stream] = {}
        self._outside: dict[int, Stream] = {}
        self._ended = 0  # streams that came to their end
        self._resets = 0  # streams that the client gave up
        self._leaving = False  # no new streams
        self._commands: list[Command] = []

    def start(self) -> list[Command]:
        """TLS stands on both sides."""
        return [*self._flush(), StartTimer(IDLE_TIMER, self.policy.limits.peek)]

    def handle(self, event: InputEvent) -> list[Command]:
        """Bytes, ends, timers."""
        self._commands = []
        match event:
            case ClientData(data):
                self._from_client(self._client.feed(data))
            case UpstreamData(data):
                if self._upstream is not None:
                    self._from_upstream(self._upstream.feed(data))
            case ClientEof() | ClientLost():
                return self._end("eof" if not self._streams else "client_lost", None, reset=bool(self._streams))
            case UpstreamEof() | UpstreamLost():
                return self._end("upstream_lost", Reason.CONNECT_FAILED if self._streams else None, reset=True)
            case TimedOut():
                return self._end(Reason.IDLE.value, Reason.IDLE, reset=bool(self._streams))
            case _:
                return self._end("internal", Reason.INTERNAL, reset=True)
        return self._after()

    def _after(self) -> list[Command]:
        if any(isinstance(command, Close) for command in self._commands):
            return self._commands
        self._pass_on()
        commands = [*self._commands, *self._flush()]
        if self._leaving and not self._streams:
            return commands + self._end("eof", None)
        return [*commands, StartTimer(IDLE_TIMER, self.policy.limits.idle)]

    def _flush(self) -> list[Command]:
        """What both sides have to say by now."""
        commands: list[Command] = []
        if data := self._client.output():
            self._ledger.bytes_in += len(data)
            commands.append(ToClient(data))
        if self._upstream is not None and (data := self._upstream.output()):
            self._ledger.bytes_out += len(data)
            commands.append(ToUpstream(data))
        return commands

    # --- the client's side ---------------------------------------------------------------------------------------

    def _from_client(self, events: Sequence[SideEvent]) -> None:
        for event in events:
            match event:
                case RequestReceived():
                    self._asked(event)
                case DataReceived():
                    self._body(event)
                case TrailersReceived(stream_id=number):
                    self._give_up(number, ErrorCodes.PROTOCOL_ERROR)  # no request that is known here has any
                case StreamEnded(stream_id=number):
                    if number in self._streams:
                        self._streams[number].out.ending = True
                case StreamReset(stream_id=number):
                    self._left(number)
                case GoingAway():
                    self._leaving = True
                case Broken():
                    self._commands += self._end("denied", Reason.MALFORMED, reset=True)
                case _:
                    pass

    def _asked(self, event: RequestReceived) -> None:
        stream = Stream(_number(event.stream_id), self._guard.scan(), request=self._ledger.new_id())
        self._streams[stream.inside] = stream
        try:
            head = parse_request(event.headers or (), _SCHEME, ends=event.stream_ended is not None)
        except HeadError as error:
            refusal = error.refusal
            self._refuse(stream, self._denial(refusal.reason, Layer.REQUEST, refusal.detail), HTTPStatus.BAD_REQUEST)
            return
        request = HttpRequest(self._target, head.method, head.authority, head.path, head.upgrade)
        decision = decide(self.policy, request, Moment(self._ledger.now(), self.tools))
        if not decision.allowed:
            self._refuse(stream, decision, HTTPStatus.FORBIDDEN, head)
            return
        self._decision = decision
        self._admit(stream, head, decision, ends=event.stream_ended is not None)

    def _admit(self, stream: Stream, head: RequestHead, decision: Decision, *, ends: bool) -> None:
        admitted = self._guard.admit(head)
        if not isinstance(admitted, Admitted):
            denial = self._denial(admitted.reason, Layer.REQUEST, admitted.detail)
            self._refuse(stream, denial, HTTPStatus.FORBIDDEN, head)
        elif self._broken is not None or self._upstream is None:
            self._refuse(stream, self._broken or decision, HTTPStatus.BAD_GATEWAY, head)
        elif self._leaving or self._full():
            self._give_up(stream.inside, ErrorCodes.REFUSED_STREAM)  # RFC 9113 8.7: it may be asked again
        else:
            described = _described(head, admitted.secrets)
            self._commands.append(self._ledger.request(stream.request, decision, **described))
            stream.outside = self._upstream.h2.get_next_available_stream_id()
            self._outside[stream.outside] = stream
            headers = request_headers(admitted.head, self._authority, _SCHEME)
            stream.out.ending = stream.out.ended = ends
            self._upstream.h2.send_headers(stream.outside, headers, end_stream=ends)

    def _full(self) -> bool:
        assert self._upstream is not None
        h2 = self._upstream.h2
        return h2.open_outbound_streams >= h2.remote_settings.max_concurrent_streams

    def _body(self, event: DataReceived) -> None:
        number, data, took = _number(event.stream_id), event.data or b"", event.flow_controlled_length or 0
        stream = self._streams.get(number)
        if stream is None or not stream.outside:
            self._client.h2.acknowledge_received_data(took, number)
        elif stream.scan.found(data):
            self._client.h2.acknowledge_received_data(took, number)
            stream.request = self._ledger.new_id()  # its head is on record as allowed; this is what became of it
            denial = self._denial(Reason.PLACEHOLDER, Layer.STREAM, "a secret's placeholder in the body")
            self._refuse(stream, denial, HTTPStatus.FORBIDDEN)
        else:
            stream.out.pieces.append((data, took))

    def _left(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        self._resets += 1
        self._drop_outside(stream, ErrorCodes.CANCEL)
        self._forget(stream)
        if self._resets > limits.H2_RESETS + self._ended:
            self._commands += self._end("denied", Reason.MALFORMED, reset=True)

    # --- upstream's side -----------------------------------------------------------------------------------------

    def _from_upstream(self, events: Sequence[SideEvent]) -> None:
        for event in events:
            match event:
                case ResponseReceived() | InformationalResponseReceived() | TrailersReceived():
                    self._headers(event)
                case DataReceived(data=data, flow_controlled_length=took, stream_id=number):
                    self._back(_number(number), data or b"", took or 0)
                case StreamEnded(stream_id=number):
                    if stream := self._outside.get(_number(number)):
                        stream.back.ending = True
                case StreamReset(stream_id=number, error_code=code):
                    if stream := self._outside.get(_number(number)):
                        self._give_up(stream.inside, ErrorCodes(code or 0), tell_outside=False)
                case GoingAway(last, _):
                    self._upstream_leaves(last)
                case Broken():
                    how, reason = "upstream_malformed", Reason.CONNECT_FAILED
                    self._commands += self._end(how, reason if self._streams else None, reset=True)
                case _:
                    pass

    def _headers(self, event: ResponseReceived | InformationalResponseReceived | TrailersReceived) -> None:
        stream = self._outside.get(_number(event.stream_id))
        if stream is None:
            return
        try:
            if isinstance(event, TrailersReceived):
                stream.back.trailers = parse_trailers(event.headers or ())
                return
            answer = parse_response(event.headers or ())
        except HeadError:
            self._give_up(stream.inside, ErrorCodes.PROTOCOL_ERROR)
            return
        if isinstance(event, ResponseReceived):
            stream.answered = True
            self._ledger.count_status(answer.status)
        self._client.h2.send_headers(stream.inside, answer.headers)

    def _back(self, number: int, data: bytes, took: int) -> None:
        stream = self._outside.get(number)
        if stream is not None:
            stream.back.pieces.append((data, took))
        elif self._upstream is not None:
            self._upstream.h2.acknowledge_received_data(took, number)

    def _upstream_leaves(self, last: int) -> None:
        """Streams that it did not take may be asked again; so may all new ones, on another connection."""
        for stream in list(self._outside.values()):
            if stream.outside > last:
                self._give_up(stream.inside, ErrorCodes.REFUSED_STREAM, tell_outside=False)
        if not self._leaving:
            self._leaving = True
            self._commands += self._flush()
            farewell = goaway(max(self._streams, default=0))
            self._ledger.bytes_in += len(farewell)
            self._commands.append(ToClient(farewell))

    # --- passing on ----------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Whatever the windows have room for, each stream in turn."""
        for stream in list(self._streams.values()):
            if stream.outside and self._upstream is not None:
                pass_on(self._client, stream.inside, self._upstream, stream.outside, stream.out)
            if not stream.outside or stream.answered:
                pass_on(self._upstream, stream.outside, self._client, stream.inside, stream.back)
            if stream.back.ended:
                self._complete(stream)

    def _complete(self, stream: Stream) -> None:
        """The response is whole; a request that is not is of no use any more (RFC 9113 8.1)."""
        self._ended += 1
        if not stream.out.ending:
            reset(self._client, stream.inside, ErrorCodes.NO_ERROR)
        if not stream.out.ended:
            self._drop_outside(stream, ErrorCodes.NO_ERROR)
        self._forget(stream)

    def _give_up(self, inside: int | None, code: ErrorCodes, *, tell_outside: bool = True) -> None:
        stream = self._streams.get(_number(inside))
        if stream is None:
            return
        if tell_outside:
            self._drop_outside(stream, code)
        reset(self._client, stream.inside, code)
        self._forget(stream)

    def _drop_outside(self, stream: Stream, code: ErrorCodes) -> None:
        if stream.outside and self._upstream is not None:
            self._outside.pop(stream.outside, None)
            reset(self._upstream, stream.outside, code)

    def _forget(self, stream: Stream) -> None:
        """What it holds is thrown away: the connection's window gets it back."""
        self._streams.pop(stream.inside, None)
        self._outside.pop(stream.outside, None)
        for side, number, way in (
            (self._client, stream.inside, stream.out),
            (self._upstream, stream.outside, stream.back),
        ):
            for _, took in way.pieces:
                if side is not None and took:
                    side.h2.acknowledge_received_data(took, number)
            way.pieces.clear()

    # --- ends ----------------------------------------------------------------------------------------------------

    def _refuse(self, stream: Stream, decision: Decision, status: HTTPStatus, head: RequestHead | None = None) -> None:
        """Answer the stream ourselves, on record."""
        described = _described(head, ()) if head is not None else {}
        self._commands.append(self._ledger.request(stream.request, decision, status=status.value, **described))
        self._drop_outside(stream, ErrorCodes.CANCEL)
        if stream.answered:
            self._give_up(stream.inside, ErrorCodes.CANCEL, tell_outside=False)
            return
        stream.outside = 0
        self._ledger.count_status(status.value)
        body = denial_body(decision, self._target, stream.request)
        fields = [
            (b":status", b"%d" % status.value),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        self._client.h2.send_headers(stream.inside, fields)
        stream.back = Way(deque([(body, 0)]), ending=True)

    def _denial(self, reason: Reason, layer: Layer, detail: str) -> Decision:
        rule, proto, mode = self._decision.rule, self._decision.proto, self._decision.mode
        return Decision(Verdict.DENY, reason, layer, rule, proto, mode, f"denied: {reason.value} ({detail})")

    def _end(self, how: str, reason: Reason | None, *, reset: bool = False) -> list[Command]:
        return [self._ledger.close(how, reason), Close(reset=reset)]


def _number(stream_id: int | None) -> int:
    return stream_id or 0


def _described(head: RequestHead, secrets: tuple[str, ...]) -> dict[str, Any]:
    """What a record says of the request: never its whole query."""
    described: dict[str, Any] = {"method": head.method, "path": head.path}
    if head.query is not None:
        described["query_hash"] = hashlib.sha256(head.query).hexdigest()[:16]
    if secrets:
        described["secrets"] = list(secrets)
    return described
