"""How the gateway verifies upstream servers: the host's trust store, and a file that the operator may add. Always.

Not here: the handshake (`secured`). Shared by all sandboxes of a gateway; called by `pump`.
"""

import ssl
from pathlib import Path

from sandboxd.errors import SandboxdError


class UpstreamTls:
    """Contexts by what they offer. `authorities`: a PEM file of more roots. `prepare` says whether it can be used."""

    def __init__(self, authorities: Path | None = None) -> None:
        self._authorities = authorities
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}

    def prepare(self) -> None:
        """Read the trust store now. Raises SandboxdError `upstream_ca`."""
        self.context(())

    def context(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """A client's context that offers `alpn`; the certificate must be good for the name that is asked for."""
        if alpn not in self._contexts:
            self._contexts[alpn] = self._make(alpn)
        return self._contexts[alpn]

    def _make(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._authorities is not None:
            try:
                context.load_verify_locations(str(self._authorities))
            except (OSError, ssl.SSLError) as error:
                reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "can't be read"
                raise SandboxdError(
                    "upstream_ca", f"{self._authorities}: {reason}", hint="upstream_ca in the settings file names it"
                ) from None
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context
