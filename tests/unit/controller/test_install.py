"""What runs inside while a package is installed."""

import json
import subprocess
import sys
from pathlib import Path

from sandboxd.controller import install


def test_what_was_installed_is_read_without_running_it(tmp_path: Path) -> None:
    """A wheel may bring a .pth file, which the interpreter of its environment runs at every start."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    described = site / "wanted_package-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: wanted-package\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[console_scripts]\nwanted = wanted:main\n")
    (site / "evil.pth").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    item = {
        "metadata": {"name": "wanted-package", "version": "1.0"},
        "download_info": {"archive_info": {"hashes": {"sha256": "ab"}}},
    }
    (tmp_path / "report.json").write_text(json.dumps({"install": [item]}))
    *_, collect = install.pip_command("x==1", "wanted-package", constrained=False, scripts=True, trusted=[])
    words = [sys.executable, "-I", "-c", collect, "wanted-package", tmp_path / "report.json", site]
    out = subprocess.run(words, capture_output=True, check=True).stdout
    assert json.loads(out.removeprefix(install.MARK)) == {
        "lock": [{"name": "wanted-package", "version": "1.0", "hash": "sha256:ab"}],
        "programs": {"wanted": "/opt/server/bin/wanted"},
    }
    assert not (tmp_path / "ran").exists()


def test_after_the_installation_its_own_interpreter_is_not_started() -> None:
    script = install.pip_command("x==1", "x", constrained=False, scripts=False, trusted=[])[2]
    after = script.partition(' -- "$requirement"')[2]
    assert after
    assert "/opt/server/bin" not in after
