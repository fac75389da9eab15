"""Whom a sandbox trusts: what is written, what is refused, and whose files are read."""

import base64
import os
from pathlib import Path

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden.server.trust import Roots, image_roots

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PLACE = "etc/ssl/certs/ca-certificates.crt"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "roots.pem", tmp_path / "roots.p12")


def test_both_files_are_written_over_and_readable_by_all(roots: Roots, tmp_path: Path) -> None:
    assert not roots.filled
    roots.fill(b"image's roots", PEM, base64.b64encode(b"store").decode())
    assert roots.filled
    assert (tmp_path / "roots.pem").read_text() == f"image's roots\n{PEM}"
    assert (tmp_path / "roots.p12").read_bytes() == b"store"
    assert (tmp_path / "roots.pem").stat().st_mode & 0o777 == 0o444
    roots.fill(b"", PEM, "")
    assert (tmp_path / "roots.pem").read_text() == PEM
    assert (tmp_path / "roots.p12").read_bytes() == b""
    roots.close()
    roots.close()


@pytest.mark.parametrize(
    "authority",
    ["", "x", PEM + "trailing", PEM.replace("MIIB", "MI IB"), PEM * 9, PEM.replace("\n", "\r\n"), "\n" + PEM],
)
def test_what_is_no_certificate_is_refused(roots: Roots, tmp_path: Path, authority: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        roots.fill(b"", authority, "")
    assert refused.value.code == "bad_authority"
    assert not roots.filled
    assert (tmp_path / "roots.pem").read_bytes() == b""


def test_a_store_that_is_not_base64_is_refused(roots: Roots) -> None:
    with pytest.raises(SandboxdError, match="Java"):
        roots.fill(b"", PEM, "not base64!")


def image(root: Path) -> dict[str, object]:
    return {"GraphDriver": {"Name": "overlay2", "Data": {"MergedDir": str(root)}}}


def test_the_images_own_roots(tmp_path: Path) -> None:
    (tmp_path / PLACE).parent.mkdir(parents=True)
    (tmp_path / PLACE).write_text("the image's")
    assert image_roots(image(tmp_path)) == b"the image's"


@pytest.mark.parametrize("link", ["/secret", "../../../../../../secret", "/proc/self/environ"])
def test_links_do_not_lead_out_of_the_image(tmp_path: Path, link: str) -> None:
    (tmp_path / "secret").write_text("the host's secret")
    root = tmp_path / "root"
    (root / PLACE).parent.mkdir(parents=True)
    (root / PLACE).symlink_to(link)
    found = image_roots(image(root))
    assert b"the host's secret" not in found
    (root / "secret").write_text("the image's own")
    if link != "/proc/self/environ":
        assert image_roots(image(root)) == b"the image's own"


def test_a_directory_that_is_a_link_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "outside/certs").mkdir(parents=True)
    (tmp_path / "outside/certs/ca-certificates.crt").write_text("the host's secret")
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/ssl").symlink_to(tmp_path / "outside")
    assert b"secret" not in image_roots(image(tmp_path / "root"))


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / PLACE).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / PLACE)
    (tmp_path / "etc/ssl/cert.pem").write_text("elsewhere")
    assert image_roots(image(tmp_path)) == b"elsewhere"


@pytest.mark.parametrize("driver", [{}, {"GraphDriver": None}, {"GraphDriver": {"Data": None}}])
def test_where_docker_shows_nothing_the_hosts_roots_count(driver: dict[str, object]) -> None:
    assert isinstance(image_roots(driver), bytes)
