"""Where a host gets packages: its settings read as its clients do, its index asked on this machine's loopback."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.controller import indexes, install
from sandboxd.controller.indexes import Configuration
from sandboxd.controller.packages import Package
from sandboxd.errors import SandboxdError
from sandboxd.settings import Pin

DEMO = Package("pypi", "demo", "1.0")
SCOPED = Package("npm", "@acme/tool", "2.0.0")
CERTIFICATES = indexes.SYSTEM_CERTIFICATES.read_text()
NOTHING: dict[str, str] = {}


@contextmanager
def index(answers: dict[str, tuple[str, bytes]]) -> Iterator[tuple[str, list[http.client.HTTPMessage]]]:
    """An index on 127.0.0.1: path → media type and body. Gives its URL, and the heads of what was asked."""
    asked: list[http.client.HTTPMessage] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers)
            kind, body = answers.get(self.path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_pip_settings_are_those_of_install():
    listing = "\n".join(
        (
            ":env:.cert='/env.pem'",
            "global.cert='/global.pem'",
            "global.index-url='https://global.example/simple'",
            "install.index-url='https://install.example/simple'",
            "download.index-url='https://download.example/simple'",
            "global.extra-index-url='file:///a\\nhttps://b.example/simple'",
        )
    )
    settings = indexes.pip_settings(listing)
    assert settings["index-url"] == "https://install.example/simple"
    assert settings["cert"] == "/env.pem"
    assert settings["extra-index-url"].split() == ["file:///a", "https://b.example/simple"]


def test_pips_own_default_stands_where_nothing_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(indexes, "_pip_python", lambda *_: "https://default.example/simple\n")
    found = indexes._pip_configuration({"extra-index-url": "file:///a https://b.example/s"}, NOTHING)
    assert found.url == "https://default.example/simple"
    assert found.extra == ("https://b.example/s",)  # a folder of this host is not to be seen inside
    assert found.certificates == CERTIFICATES


def test_a_host_without_an_index_says_so():
    with pytest.raises(SandboxdError, match="no-index"):
        indexes._pip_configuration({"no-index": "1"}, NOTHING)


def test_certificates_that_are_named_but_missing_are_an_error():
    with pytest.raises(SandboxdError, match=r"/nowhere\.pem"):
        indexes._pip_configuration({"index-url": "https://a.example", "cert": "/nowhere.pem"}, NOTHING)


def test_files_are_found_by_the_page_of_the_index():
    page = {"files": [{"url": "https://files.example/a.whl"}, {"url": "../../b.whl"}]}
    answers = {"/simple/demo/": ("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())}
    with index(answers) as (url, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "_resolve", lambda host, _: "192.0.2.1" if host == "files.example" else host)
        found = indexes.find_index(DEMO, Configuration(f"{url}/simple", CERTIFICATES, trusted=("127.0.0.1",)))
        port = int(url.rpartition(":")[2])
        assert found.allows == (f"http://127.0.0.1:{port}", "tls://files.example:443")
        assert found.pins == (Pin("127.0.0.1", "127.0.0.1", port), Pin("files.example", "192.0.2.1", 443))
        assert found.env["PIP_INDEX_URL"] == f"{url}/simple"
        assert found.files == {install.CERTIFICATES: CERTIFICATES}
        assert found.trusted == ("127.0.0.1",)


def test_an_old_index_answers_in_html():
    answers = {"/simple/demo/": ("text/html", b'<a href="../../files/demo.whl#sha256=0">demo</a><a>none</a>')}
    with index(answers) as (url, _):
        assert indexes.find_index(DEMO, Configuration(f"{url}/simple/", CERTIFICATES)).allows == (
            f"http://127.0.0.1:{url.rpartition(':')[2]}",
        )


def test_the_indexs_credentials_are_used_and_never_shown():
    answers = {"/demo/": ("application/json", b'{"files": []}')}
    with index(answers) as (url, asked):
        secret = url.replace("http://", "http://user:s3cret@")
        configuration = Configuration(secret, CERTIFICATES)
        found = indexes.find_index(DEMO, configuration)
        assert asked[0]["Authorization"] == "Basic dXNlcjpzM2NyZXQ="
        assert found.env["PIP_INDEX_URL"] == secret
        assert "s3cret" not in repr(found) + repr(configuration) + repr(found.allows)
        with pytest.raises(SandboxdError) as refusal:
            indexes.find_index(Package("pypi", "other", "1"), configuration)
        assert "HTTP 404" in str(refusal.value)
        assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_index_is_an_error(body: bytes):
    with index({"/demo/": ("application/json", body)}) as (url, _):
        with pytest.raises(SandboxdError, match="is that a package index"):
            indexes.find_index(DEMO, Configuration(url, CERTIFICATES))


@pytest.mark.parametrize("url", ["ftp://a.example/simple", "file:///a/simple", "https:///simple"])
def test_an_index_is_on_the_web(url: str):
    with pytest.raises(SandboxdError, match="HTTPS or HTTP"):
        indexes.find_index(DEMO, Configuration(url, CERTIFICATES))


def test_an_unreachable_index_is_an_error_with_its_place():
    with index({}) as (url, _):
        pass
    with pytest.raises(SandboxdError, match=r"127\.0\.0\.1"):
        indexes.find_index(DEMO, Configuration(url, CERTIFICATES))


def test_npmrc_is_read_as_npm_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = tmp_path / "user", tmp_path / "system"
    first.write_text("; a comment\nregistry = https://user.example/\n//user.example/:_authToken=${TOKEN}\n#x=y\n")
    second.write_text('registry=https://system.example/\ncafile="/ca.pem"\nflag\n')
    monkeypatch.setenv("TOKEN", "s3cret")
    assert indexes.read_npmrc([tmp_path / "none", first, second]) == {
        "registry": "https://user.example/",
        "//user.example/:_authToken": "s3cret",
        "cafile": "/ca.pem",
    }


def test_npm_settings_by_scope_then_variable_then_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(indexes, "_ask_npm", lambda: "https://asked.example/")
    settings = {"registry": "https://file.example/", "@acme:registry": "https://acme.example/"}
    variable = {"NPM_CONFIG_REGISTRY": "https://variable.example/"}
    plain = Package("npm", "tool", "2.0.0")
    assert indexes._npm_configuration(SCOPED, settings, variable).url == "https://acme.example/"
    assert indexes._npm_configuration(plain, settings, variable).url == "https://variable.example/"
    assert indexes._npm_configuration(plain, settings, NOTHING).url == "https://file.example/"
    assert indexes._npm_configuration(plain, {}, NOTHING).url == "https://asked.example/"


def test_npm_asks_for_the_version_and_takes_only_that_registrys_token():
    answer = {"dist": {"tarball": "https://files.example/tool.tgz"}}
    with index({"/npm/@acme%2Ftool/2.0.0": ("application/json", json.dumps(answer).encode())}) as (url, asked):
        place = url.removeprefix("http:")
        secrets = {f"{place}/npm/:_authToken": "s3cret", "//elsewhere.example/:_authToken": "other"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(indexes, "_resolve", lambda host, _: "192.0.2.1")
            found = indexes.find_index(SCOPED, Configuration(f"{url}/npm/", CERTIFICATES, secrets=secrets))
        assert asked[0]["Authorization"] == "Bearer s3cret"
        assert found.allows == (f"http://127.0.0.1:{url.rpartition(':')[2]}", "tls://files.example:443")
        assert "s3cret" in found.files[install.NPM_SETTINGS]
        assert "other" not in found.files[install.NPM_SETTINGS]
        assert "s3cret" not in repr(found)


def test_no_registry_anywhere_is_an_error_that_says_how_to_set_one():
    configuration = replace(Configuration("x", CERTIFICATES), url=None)
    with pytest.raises(SandboxdError, match="npm config set registry"):
        indexes.find_index(SCOPED, configuration)


def test_resolving_prefers_ipv4_and_says_what_fails():
    assert indexes._resolve("localhost", 443) == "127.0.0.1"
    with pytest.raises(SandboxdError, match="can't be resolved"):
        indexes._resolve("no-such-host.invalid", 443)
