"""HTTP/1.1 between a client and an upstream server, request by request (egress.md 4): bytes in, events out.

`ClientSide` (`http_client`) reads requests and writes responses, `UpstreamSide` (`http_upstream`) the reverse. Our own
strict grammar comes first (`http_head`, `http_framing`), h11 reads what passed it a second time, and writes. Heads are
written anew, never copied, bodies are framed anew. This module is the door to all of it. Not here: whether a request is
allowed, where it goes (the caller, `egress.http_flow`), HTTP/2.

    client, upstream = ClientSide(), UpstreamSide()
    for event in client.feed(data):            # RequestHead, then Body…, EndOfRequest; or a Refusal, which is final
        if isinstance(event, RequestHead):     # nothing follows until the caller says `proceed`: decide, dial, then
            send_up(upstream.request(event, authority=b"example.com"))
            more = client.proceed()            # the events of what came meanwhile; later ones come from `feed`
        elif isinstance(event, Body):
            send_up(upstream.body(event.data))
        elif isinstance(event, EndOfRequest):
            send_up(upstream.end())
    for event in upstream.feed(data):          # ResponseHead (interim ones too), Body…, EndOfResponse, or Refusal
        if isinstance(event, ResponseHead):
            send_down(client.respond(event))
        elif isinstance(event, Body):
            send_down(client.body(event.data))
        elif isinstance(event, EndOfResponse):
            send_down(client.end())
            if client.reusable and upstream.reusable:
                more = client.next_request()   # what was pipelined; otherwise: close both
        elif isinstance(event, Switched):      # 101, or 2xx to CONNECT: from here on bytes pass both ways
            send_down(event.trailing)
            send_up(client.rest())

A response may end before its request does (413, say): then `client.reusable` is false. Feeding never raises; the
writing methods raise `h11.LocalProtocolError` where the caller mixes up their order, whatever the peers sent.
"""

from sandboxd.egress.wire.http_client import ClientSide
from sandboxd.egress.wire.http_messages import (
    Body,
    EndOfRequest,
    EndOfResponse,
    RequestEvent,
    RequestHead,
    ResponseEvent,
    ResponseHead,
    Switched,
)
from sandboxd.egress.wire.http_upstream import UpstreamSide
from sandboxd.egress.wire.outcome import Refusal

__all__ = [
    "Body",
    "ClientSide",
    "EndOfRequest",
    "EndOfResponse",
    "Refusal",
    "RequestEvent",
    "RequestHead",
    "ResponseEvent",
    "ResponseHead",
    "Switched",
    "UpstreamSide",
]
