"""The certificate authority of one sandbox: what it may sign is bounded by its own certificate, its key is in this
process's memory only, and goes with the registration.

Owns the leaf certificates, short-lived and kept while they are good. Not here: which names are intercepted. Made by
`sessions`, asked by `pump`. Imports `cryptography`, which takes a tenth of a second: import this late.
"""

import base64
import codecs
import contextlib
import datetime
import functools
import os
import ssl
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandboxd import limits

# `ssl` asks for this codec by name, and its module's file can't be read once the gateway has its own user.
codecs.lookup("idna")

_END = b"-----END CERTIFICATE-----\n"
_DAY = datetime.timedelta(days=1)
# A sandbox's clock may be off, and clients refuse what is valid only in the future.
_BEFORE = datetime.timedelta(hours=1)
_ADDRESSES = (ip_network("0.0.0.0/0"), ip_network("::/0"))


# Nothing in the store is secret, and every start would wait for more.
JAVA_PASSWORD = b"changeit"
_JAVA_ROUNDS = 1000


class Authority:
    """`names`: those it may sign, and all below each. `organisation` is what people see, no secret."""

    def __init__(self, names: Sequence[str], organisation: str) -> None:
        self.names = _bounded(names)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation[:64]),
                x509.NameAttribute(NameOID.COMMON_NAME, "sandboxd egress interception"),
            ]
        )
        self._certificate = self._sign_itself()
        self._contexts: OrderedDict[tuple[str, str], tuple[ssl.SSLContext, datetime.datetime]] = OrderedDict()

    def __repr__(self) -> str:
        return f"Authority({', '.join(self.names)})"

    @property
    def pem(self) -> str:
        """Its certificate, for the sandbox to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    @functools.cached_property
    def java(self) -> str:
        """Its certificate and the host's roots in a store for Java (PKCS12, base64); the password is Java's usual."""
        named = [pkcs12.PKCS12Certificate(self._certificate, b"sandboxd")]
        named += [pkcs12.PKCS12Certificate(root, b"root-%d" % number) for number, root in enumerate(_host_roots())]
        form = serialization.PrivateFormat.PKCS12.encryption_builder().kdf_rounds(_JAVA_ROUNDS)
        form = form.key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC).hmac_hash(hashes.SHA256())
        return base64.b64encode(pkcs12.serialize_java_truststore(named, form.build(JAVA_PASSWORD))).decode("ascii")

    def may_sign(self, name: str) -> bool:
        """Whether clients would accept its signature for `name`."""
        return any(name == own or name.endswith(f".{own}") for own in self.names)

    def context(self, host: str, alpn: str) -> ssl.SSLContext:
        """A server's context with a certificate for exactly `host`, that chooses `alpn` (empty: nothing)."""
        key, now = (host, alpn), _now()
        found = self._contexts.get(key)
        if found is None or found[1] <= now:
            found = self._contexts[key] = self._make(host, alpn), now + _DAY - _BEFORE
        self._contexts.move_to_end(key)
        while len(self._contexts) > limits.LEAVES:
            self._contexts.popitem(last=False)
        return found[0]

    def _make(self, host: str, alpn: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if alpn:
            context.set_alpn_protocols([alpn])
        plain = serialization.NoEncryption()
        pem = self._sign(host).public_bytes(serialization.Encoding.PEM) + self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
        )
        # OpenSSL takes a key from a file only, as far as Python goes: this one is memory.
        fd = os.memfd_create("leaf", os.MFD_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        return context

    def _sign(self, host: str) -> x509.Certificate:
        # A common name has 64 characters at most; the alternative name is what counts (RFC 9525 6.3).
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host if len(host) <= 64 else "intercepted")])
        builder = (
            self._begin(subject, self._leaf_key.public_key(), _DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())

    def _sign_itself(self) -> x509.Certificate:
        permitted = [x509.DNSName(name) for name in self.names]
        constraints = x509.NameConstraints(permitted, [x509.IPAddress(block) for block in _ADDRESSES])
        builder = (
            self._begin(self._subject, self._key.public_key(), 365 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(constraints, critical=True)
        )
        return builder.sign(self._key, hashes.SHA256())

    def _begin(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = _now()
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + valid)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
        )


def _host_roots() -> list[x509.Certificate]:
    """As far as they can be read: some roots are older than today's rules for certificates."""
    path = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    try:
        pieces = Path(path).read_bytes().split(_END)
    except OSError:
        return []
    roots: list[x509.Certificate] = []
    for piece in pieces[:-1]:
        with warnings.catch_warnings(), contextlib.suppress(ValueError):
            warnings.simplefilter("ignore")
            roots.append(x509.load_pem_x509_certificate(piece + _END))
    return roots


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _bounded(names: Sequence[str]) -> tuple[str, ...]:
    """The names that the certificate lists; where they are too many, what they end in."""
    if len(names) <= limits.SIGNED_NAMES:
        return tuple(dict.fromkeys(names))
    return tuple(dict.fromkeys(name.rpartition(".")[2] for name in names))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
