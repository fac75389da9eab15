"""What a ContainerSpec may say, and what is refused whoever asks."""

import dataclasses
import os

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden import protocol as p
from sandboxd.warden.server.admission import check_source, check_spec

GOOD = p.ContainerSpec("sb-0123456789abcdef", "agent", "mcp:fetch", "sandboxd/base:1")


def test_good_ones_pass() -> None:
    check_spec(GOOD)
    check_spec(dataclasses.replace(GOOD, image="sha256:" + "a" * 64))
    check_spec(dataclasses.replace(GOOD, mounts=(p.Mount("/srv/project", "/workspace", False), p.Mount("/a", "/b"))))
    check_spec(dataclasses.replace(GOOD, build=True, files={"/build/package.json": "{}"}))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sandbox": "sb-1"}, "bad_spec"),
        ({"sandbox": "../../etc"}, "bad_spec"),
        ({"agent": ""}, "bad_spec"),
        ({"agent": "a\nb"}, "bad_spec"),
        ({"workload": "x" * 129}, "bad_spec"),
        ({"image": "../x"}, "bad_spec"),
        ({"image": "a b"}, "bad_spec"),
        ({"resources": p.Resources(memory=1)}, "bad_resources"),
        ({"resources": p.Resources(memory=-1)}, "bad_resources"),
        ({"resources": p.Resources(cpus=0.0)}, "bad_resources"),
        ({"resources": p.Resources(cpus=float("nan"))}, "bad_resources"),
        ({"resources": p.Resources(cpus=float(os.cpu_count() or 1) + 0.5)}, "bad_resources"),
        ({"resources": p.Resources(pids=-1)}, "bad_resources"),
        ({"resources": p.Resources(nofile=0)}, "bad_resources"),
        ({"resources": p.Resources(tmp=0)}, "bad_resources"),
        ({"mounts": (p.Mount("/a", "/workspace"),) * 2}, "mount_target"),
        ({"mounts": (p.Mount("/a", "/w"), p.Mount("/b", "/w/"))}, "mount_target"),
        ({"mounts": tuple(p.Mount("/a", f"/w{i}") for i in range(17))}, "bad_spec"),
        ({"files": {"/build/x": "y"}}, "bad_spec"),
        ({"build": True, "mounts": (p.Mount("/a", "/workspace"),)}, "build_mounts"),
        ({"build": True, "runtime": "runsc"}, "bad_spec"),
        ({"build": True, "files": {"/x": "y"}}, "bad_spec"),
        ({"build": True, "files": {"/etc/passwd": "y"}}, "bad_spec"),
        ({"build": True, "files": {"//etc/passwd": "y"}}, "bad_spec"),
        ({"build": True, "files": {"/build/../etc/passwd": "y"}}, "bad_spec"),
        ({"build": True, "files": {"/build/x": "y" * (4 << 20)}}, "bad_spec"),
        ({"build": True, "files": {f"/build/{i}": "" for i in range(65)}}, "bad_spec"),
    ],
)
def test_refused(change: dict[str, object], code: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        check_spec(dataclasses.replace(GOOD, **change))  # type: ignore[arg-type]
    assert refused.value.code == code


TAKEN = "/ // /proc /proc/self /sys /dev/shm /etc /etc/ssl /usr /usr/bin /.sandboxd /.sandboxd/gate /lib /bin /run /var"
OUTSIDE = "/ /proc /proc/1/root /sys /dev /run /run/docker.sock /var/run /etc /etc/ssh /var /var/lib /var/lib/docker"
PRIVATE = "/var/lib/docker/overlay2 /var/lib/containerd /var/lib/sandboxd/state /usr/local/lib/sandboxd /usr /root/.ssh"


@pytest.mark.parametrize("target", [*TAKEN.split(), "", "workspace", "/var/run", "/a/../etc", "/a//b", "//etc", "/a\n"])
def test_forbidden_targets(target: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        check_spec(dataclasses.replace(GOOD, mounts=(p.Mount("/srv/project", target),)))
    assert refused.value.code == "mount_target"


@pytest.mark.parametrize(
    "source", [*OUTSIDE.split(), *PRIVATE.split(), "/root", "relative", "", "//etc", "/a/../etc", "/a/./b"]
)
def test_forbidden_sources(source: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        check_source(source)
    assert refused.value.code == "mount_source"


@pytest.mark.parametrize("source", ["/usr/bin", "/usr", "/lib/systemd", "/bin", "/var/spool/cron", "/var/log"])
def test_system_sources_are_read_only_at_most(source: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        check_source(source, read_only=False)
    assert refused.value.code == "mount_source"
    if source != "/usr":  # our own files lie in there
        check_source(source, read_only=True)


@pytest.mark.parametrize(
    "source", ["/srv/project", "/home/me/src", "/root/project", "/tmp/x", "/etcetera", "/var/www/"]
)
def test_ordinary_sources(source: str) -> None:
    check_source(source)
