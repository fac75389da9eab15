"""docs/threat-model.md: promises have unique ids, and every refusal it names is one the warden has."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def section(heading: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]


def test_promises_have_ids_of_their_own() -> None:
    ids = re.findall(r"^\| `([^`]+)` \|", section("Promises"), flags=re.MULTILINE)
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", one) for one in ids)


def test_refusals_exist() -> None:
    rows = [line.split("|")[1] for line in section("What the warden refuses").splitlines() if line.startswith("| `")]
    codes = re.findall(r"`([^`]+)`", " ".join(rows))
    assert len(codes) > 30
    sources = "".join(path.read_text() for path in (ROOT / "sandboxd" / "warden" / "server").glob("*.py"))
    assert not [code for code in codes if f'"{code}"' not in sources]


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for target, _, anchor in (m.partition("#") for m in re.findall(r"\]\(([^):]+)\)", page.read_text())):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}: {target}"
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), flags=re.MULTILINE) if anchor else []
            slugs = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert not anchor or anchor in slugs, f"{page.name}: #{anchor}"
