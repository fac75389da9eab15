"""The operator's settings: pins and keys are read strictly, and the page names every key."""

from dataclasses import fields
from pathlib import Path

import pytest

from sandboxd.errors import UsageError
from sandboxd.settings import Pin, Settings, load_settings

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ("db.host.sandboxd=10.1.2.3", Pin("db.host.sandboxd", "10.1.2.3")),
        ("DB.Example.=10.1.2.3:5432", Pin("db.example", "10.1.2.3", 5432)),
        ("h=::1", Pin("h", "::1")),
        ("h=2001:DB8::1:80", Pin("h", "2001:db8::1:80")),
        ("h=[::1]", Pin("h", "::1")),
        ("h=[::1]:443", Pin("h", "::1", 443)),
    ],
)
def test_pins(text: str, pin: Pin) -> None:
    assert Pin.parse(text) == pin


NO_PORT = "h=1.2.3.4: h=1.2.3.4:0 h=1.2.3.4:65536 h=1.2.3.4:+80 h=1.2.3.4:8_0 h=1.2.3.4:x h=[::1]443 h=[::1]:"
NO_ADDRESS = "h h= =1.2.3.4 h=name h=1.2.3 h=01.2.3.4 h=0x7f000001 h=[::1 h=::1] h=[] h=fe80::1%lo h=1.2.3.4/8"


@pytest.mark.parametrize("text", [*NO_PORT.split(), *NO_ADDRESS.split(), "h= 1.2.3.4", "h=1.2.3.4 "])
def test_no_pins(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        Pin.parse(text)
    assert refused.value.code == "bad_pin"


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('state_dir = "/srv/s"\ngateway_user = "gw"\n[pins]\n"a.test" = "127.0.0.9:8443"\n')
    found = load_settings(file)
    assert found == Settings(state_dir=Path("/srv/s"), gateway_user="gw", pins=(Pin("a.test", "127.0.0.9", 8443),))
    assert found.audit_database == Path("/srv/s/audit/audit.db")


@pytest.mark.parametrize(
    "text",
    [
        "stat_dir = '/x'",
        "gate = 7",
        "pins = 'a=1.2.3.4'",
        "gate =",
        "[pins]\na = 'b'",
        "gate = 'x'",
        "gate = ''",
        "\udcff",
    ],
)
def test_what_is_not_understood_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError):
        load_settings(file)


def test_a_named_file_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOXD_SETTINGS", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="none"):
        load_settings()


def test_the_page_names_every_key() -> None:
    page = PAGE.read_text().partition("## Settings")[2].partition("\n## ")[0]
    assert not [field.name for field in fields(Settings) if f"`{field.name}`" not in page]


def test_a_file_that_anyone_can_write_is_refused(tmp_path: Path) -> None:
    """It says who the processes run as, and pins addresses past the floor."""
    file = tmp_path / "settings.toml"
    file.write_text('controller_user = "someone"\n')
    file.chmod(0o640)
    assert load_settings(file).controller_user == "someone"
    file.chmod(0o646)
    with pytest.raises(UsageError, match="every user"):
        load_settings(file)
