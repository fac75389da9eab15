"""The settings file: whose words it may hold."""

from pathlib import Path

import pytest

from sandboxd.errors import UsageError
from sandboxd.settings import load_settings


def test_a_file_that_anyone_can_write_is_refused(tmp_path: Path) -> None:
    """It says who the processes run as, and pins addresses past the floor."""
    file = tmp_path / "settings.toml"
    file.write_text('controller_user = "someone"\n')
    file.chmod(0o640)
    assert load_settings(file).controller_user == "someone"
    file.chmod(0o646)
    with pytest.raises(UsageError, match="every user"):
        load_settings(file)
