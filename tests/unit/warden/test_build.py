"""What goes into a build, and what an image says of itself."""

import io
import tarfile

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden.server.build import image_config, pack_files
from sandboxd.warden.server.images import image_info


def test_files_belong_to_the_builds_user() -> None:
    packed = pack_files({"/build/a/package.json": "{}", "/build/install": "#!/bin/sh\n"}, 1234)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        entries = {entry.name: entry for entry in tar}
        assert {(e.uid, e.gid) for e in entries.values()} == {(1234, 1234)}
        assert sorted(entries) == ["build", "build/a", "build/a/package.json", "build/install"]
        content = tar.extractfile("build/install")
        assert content
        assert content.read() == b"#!/bin/sh\n"


def test_an_image_starts_nothing_and_keeps_no_owner() -> None:
    config = image_config({"sandboxd.image": "npm", "sandboxd.command": '["x"]'})
    assert config["Entrypoint"] == ["/bin/false"]
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert isinstance(config["Labels"], dict)
    assert config["Labels"]["sandboxd.image"] == "npm"
    assert config["Labels"]["sandboxd.sandbox"] == config["Labels"]["sandboxd.owner"] == ""


@pytest.mark.parametrize("label", ["other", "sandboxd.owner", "sandboxd.sandbox", "sandboxd.", "sandboxd.A B"])
def test_labels_of_containers_are_not_for_images(label: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        image_config({label: "x"})
    assert refused.value.code == "image_label"


def test_dockers_description() -> None:
    info = image_info(
        {
            "Id": "sha256:aa",
            "RepoTags": ["a:1"],
            "Size": 5,
            "Created": "1970-01-02T00:00:00.5Z",
            "Config": {"Labels": None, "Entrypoint": ["/e"], "Cmd": ["c"], "Env": ["PATH=/bin"]},
        }
    )
    assert (info.names, info.labels, info.created) == (("a:1",), {}, 86400.5)
    assert (info.command, info.env) == (("/e", "c"), ("PATH=/bin",))
