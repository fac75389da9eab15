"""The certificates of one sandbox's intercepted connections: its own authority's inside, upstream's outside.

Made by `sessions`, one a registration, so that the authority stays the same while the policy is replaced; asked by the
pumps. Not here: how certificates are made (`authority`) and verified (`upstream_tls`).
"""

import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandboxd.egress.gateway.upstream_tls import UpstreamTls

if TYPE_CHECKING:
    from sandboxd.egress.gateway.authority import Authority


class InterceptionError(Exception):
    """The sandbox would not trust what the policy wants; `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SandboxCertificates:
    """`ca`: what the sandbox must trust (PEM); empty where nothing is intercepted."""

    def __init__(self, upstream: UpstreamTls) -> None:
        self._upstream = upstream
        self._authority: Authority | None = None

    @property
    def ca(self) -> str:
        return self._authority.pem if self._authority is not None else ""

    @property
    def java(self) -> str:
        """The same and the host's roots as Java reads them: PKCS12, base64."""
        return self._authority.java if self._authority is not None else ""

    def allow(self, names: Sequence[str], sandbox: str, *, begin: bool) -> None:
        """The policy intercepts under `names`. `begin`: the workload does not run yet, so that it can come to trust an
        authority. Raises InterceptionError; SandboxdError where the operator's roots can't be read."""
        if self._authority is None and names and begin:
            self._upstream.prepare()
            from sandboxd.egress.gateway.authority import Authority

            self._authority = Authority(names, sandbox)
        elif self._authority is None and names:
            raise InterceptionError("intercept_late", "interception begins with a workload: start it anew")
        beyond = [name for name in names if self._authority is None or not self._authority.may_sign(name)]
        if beyond:
            text = f"the workload trusts its authority for other names than {beyond[0]}: start it anew"
            raise InterceptionError("intercept_names", text)

    def for_upstream(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """A verifying client's context."""
        return self._upstream.context(alpn)

    def for_client(self, host: str, alpn: str) -> ssl.SSLContext:
        """A server's context for `host`."""
        assert self._authority is not None, "what is intercepted was registered"
        return self._authority.context(host, alpn)
