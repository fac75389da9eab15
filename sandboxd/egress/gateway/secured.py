"""TLS on one end of a connection: an `End` whose bytes are encrypted on the wire and plain towards the flow.

Takes an end over from the pump and offers what an end does. Handshakes run in memory buffers; nothing here waits. Not
here: which certificates are good (`upstream_tls`, `authority`). Called by `pump`.
"""

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from sandboxd.egress.gateway.end import End, EndCalls

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class HandshakeCalls:
    """What a handshake tells, once: it is done and what ALPN chose (empty: nothing), or why it failed."""

    secured: Callable[[str], None]
    failed: Callable[[str], None]


class Secured:
    """`end` with TLS over it; `server_name` is whose certificate a server must have, None where this is the server.

    From here on `end`'s events come through this; `calls` gets plain bytes, after `handshake` has told.
    """

    def __init__(
        self,
        end: End,
        context: ssl.SSLContext,
        calls: EndCalls,
        handshake: HandshakeCalls,
        server_name: str | None = None,
    ) -> None:
        self.eof = False
        self._end = end
        self._calls = calls
        self._handshake = handshake
        # Some Pythons take a connection cut without TLS's own end for a whole one (RFC 8446 6.1: truncation).
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._ready = False
        self._over = False
        end.take_over(EndCalls(data=self.receive, eof=self._ended, lost=self._lost, drained=calls.drained))

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent, as they go out."""
        return self._end.queued

    @property
    def released(self) -> bool:
        """Whether the socket is broken or closed."""
        return self._end.released

    def begin(self, first: bytes = b"") -> None:
        """Begin the handshake; `first`: what the peer has said already."""
        self._incoming.write(first)
        self._step()

    def receive(self, data: bytes) -> None:
        """Bytes of the wire."""
        if not self._over:
            self._incoming.write(data)
            self._step()

    def read(self, wanted: bool) -> None:
        """As `End.read`."""
        self._end.read(wanted)

    def send(self, data: bytes) -> None:
        """Encrypt, queue and send what goes at once."""
        if data and not self._over:
            self._tls.write(data)
            self._flush()

    def finish(self) -> None:
        """Say that no more comes, and close the sending half after what is queued."""
        self._say_end()
        self._end.finish()

    def close(self, *, reset: bool) -> None:
        """As `End.close`."""
        if not reset:
            self._say_end()
        self._over = True
        self._end.close(reset=reset)

    def _step(self) -> None:
        try:
            if not self._ready:
                self._shake()
            if self._ready:
                self._read()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLZeroReturnError:
            self._flush()
            self._finished()
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._fail(error)

    def _shake(self) -> None:
        self._tls.do_handshake()
        self._ready = True
        self._flush()
        self._handshake.secured(self._tls.selected_alpn_protocol() or "")

    def _read(self) -> None:
        """Whatever is whole; the last read raises."""
        while not self._over:
            data = self._tls.read(_CHUNK)
            if not data:
                raise ssl.SSLZeroReturnError
            self._calls.data(data)

    def _say_end(self) -> None:
        if self._ready and not self._over:
            with contextlib.suppress(ssl.SSLError):  # the peer has not said so yet; it need not
                self._tls.unwrap()
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._end.send(self._outgoing.read())

    def _fail(self, error: ssl.SSLError | ssl.CertificateError) -> None:
        self._flush()  # an alert, perhaps
        self._over = True
        if self._ready:
            self._calls.lost()
        else:
            self._handshake.failed(_reason(error))

    def _ended(self) -> None:
        """The wire ended. Without TLS's own end before, something may be missing: that is a loss."""
        if self._over:
            return
        self._incoming.write_eof()
        self._step()
        if not self.eof and not self._over:
            self._over = True
            self._calls.lost()

    def _finished(self) -> None:
        if not self.eof:
            self.eof = True
            self._calls.eof()

    def _lost(self) -> None:
        if self._over:
            return
        self._over = True
        if self._ready:
            self._calls.lost()
        else:
            self._handshake.failed("the connection broke")


def _reason(error: ssl.SSLError | ssl.CertificateError) -> str:
    """OpenSSL's words for it: out of a list of its own, no bytes of the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    return getattr(error, "reason", None) or "TLS error"
