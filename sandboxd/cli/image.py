"""`sandboxd image`: package images of this host, made, listed and removed."""

import importlib
import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandboxd.cli.text import count, harmless

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandboxd.controller.packages import Recipe
    from sandboxd.settings import Settings
    from sandboxd.warden.client import WardenClient
    from sandboxd.warden.protocol import ImageInfo

app = typer.Typer(help="Images of MCP servers, installed once in a sealed container.", no_args_is_help=True)

_Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@app.command("build")
def build(
    package: Annotated[str, typer.Argument(help="npm:NAME@VERSION or pypi:NAME==VERSION.")],
    constraint: Annotated[
        list[str] | None, typer.Option(metavar="'NAME<2'", help="pypi: of what it depends on; may be repeated.")
    ] = None,
    scripts: Annotated[
        bool, typer.Option("--scripts", help="Code of packages may run: install scripts, source distributions.")
    ] = False,
    base: Annotated[
        str, typer.Option(metavar="IMAGE", help="Install on this image; sandboxd/shell has git, curl and ripgrep.")
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="Even if the image is there.")] = False,
    as_json: _Json = False,
) -> None:
    """Install a package in a sealed container that reaches its index only; print the name of the image it becomes."""
    from sandboxd.controller.packages import Recipe, parse_constraint, parse_package
    from sandboxd.errors import UsageError

    recipe = Recipe(parse_package(package), tuple(map(parse_constraint, constraint or ())), scripts, base)
    if recipe.constraints and recipe.package.registry != "pypi":
        raise UsageError("--constraint without a pypi package", hint="an npm package's own lock decides")
    if as_json:  # for `describe`, while the interpreter's files can be read
        importlib.import_module("gzip")
    with _processes() as (settings, warden):
        image = build_image(settings, warden, recipe, again=again)
    typer.echo(json.dumps(describe(image), indent=2) if as_json else harmless(image.names[0]))


def build_image(settings: "Settings", warden: "WardenClient", recipe: "Recipe", *, again: bool) -> "ImageInfo":
    """Gives up root on the way. Raises SandboxdError."""
    from sandboxd.cli.processes import StateLeases, give_up_root
    from sandboxd.controller.builds import build, order_image
    from sandboxd.state.store import open_state

    order = order_image(warden, recipe, again=again)
    give_up_root(settings, warden, images=(order.name,))
    with open_state(settings.state_database) as state:
        return build(warden, StateLeases(state), order, settings.pins, say, progress)


@app.command("ls")
def ls(as_json: _Json = False) -> None:
    """The images that sandboxd made, newest first."""
    with _processes() as (_, warden):
        images = warden.images()
    _print(list(images), as_json)


@app.command("rm")
def rm(names: Annotated[list[str], typer.Argument(metavar="IMAGE", help="Names or ids, as ls shows them.")]) -> None:
    """Remove images that sandboxd made."""
    with _processes() as (_, warden):
        for name in names:
            warden.remove_image(name)
            say(f"{name} removed")


@contextmanager
def _processes() -> "Generator[tuple[Settings, WardenClient], None, None]":
    from sandboxd.cli.processes import end_processes, start_processes
    from sandboxd.settings import load_settings

    settings = load_settings()
    warden = start_processes(settings)
    try:
        yield settings, warden
    finally:
        end_processes(warden)


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(f"sandboxd: {text}", file=sys.stderr, flush=True)


def progress(line: str) -> None:
    """A line of the installer, which speaks from inside the container."""
    print(f"  {harmless(line)[:1000]}", file=sys.stderr, flush=True)


def _print(images: "list[ImageInfo]", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([describe(image) for image in images], indent=2))
        return
    if not images:
        say("no images; images/build makes the basic ones, `sandboxd image build` one of a package")
        return
    rows = [("IMAGE", "PACKAGE", "PROGRAMS", "PACKAGES", "SIZE", "BUILT"), *map(_row, images)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _row(image: "ImageInfo") -> tuple[str, ...]:
    facts = describe(image)
    return (
        harmless(image.names[0] if image.names else image.id[7:19]),
        harmless(facts["package"] or "-"),
        harmless(" ".join(facts["programs"]) or "-"),
        str(len(facts["lock"]) or "-"),
        count(image.size),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(image.created)),
    )


def describe(image: "ImageInfo") -> dict[str, Any]:
    """An image as --json shows it; `build` is the sandbox whose connections the audit log has."""
    from sandboxd.controller.packages import IMAGE_KIND, programs_of, unpack_lock

    labels = image.labels
    of_package = labels.get("sandboxd.image") == IMAGE_KIND
    return {
        "id": image.id,
        "names": list(image.names),
        "kind": labels.get("sandboxd.image", ""),
        "package": labels.get("sandboxd.package") if of_package else None,
        "programs": programs_of(labels) if of_package else {},
        "constraints": json.loads(labels.get("sandboxd.constraints", "[]")) if of_package else [],
        "scripts": labels.get("sandboxd.scripts") == "true",
        "lock": unpack_lock(labels["sandboxd.lock"]) if of_package else [],
        "build": labels.get("sandboxd.build") if of_package else None,
        "size": image.size,
        "created": image.created,
    }
