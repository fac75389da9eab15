"""Builds package images: a package is installed in a sealed container that reaches its index only, then committed.

What was reached stands in the audit log under the build's sandbox, which the image names. Called by `sandboxd image
build` and by `run` for a package it has no image of. Not here: what is installed and how (`packages`, `install`).
"""

import contextlib
import importlib
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from sandboxd import ids, limits
from sandboxd.controller import install, packages
from sandboxd.controller.environment import BASICS
from sandboxd.controller.packages import Installed, Recipe
from sandboxd.controller.ports import Leases, PackageWarden
from sandboxd.controller.relay import Streams
from sandboxd.controller.sandbox import Sandbox, Scope, close_streams, open_sandbox
from sandboxd.errors import SandboxdError
from sandboxd.mcp.connections.frames import STDOUT, FrameReader
from sandboxd.mcp.connections.lines import LineSplitter, OverLong
from sandboxd.settings import Pin
from sandboxd.warden.client import read_exit
from sandboxd.warden.protocol import ContainerSpec, Exited, ImageInfo, Resources

if TYPE_CHECKING:  # they cost a tenth of a second, which a run whose image is there need not pay
    from sandboxd.controller import indexes

AGENT = "image"
RESOURCES = Resources(memory=2 << 30, cpus=float(min(2, os.cpu_count() or 1)), pids=512, nofile=16384, tmp=512 << 20)
Report = Callable[[str], None]

_LATE = ("gzip", "encodings.idna", "sandboxd.controller.collect", "sandboxd.policy.shortform")


@dataclass(frozen=True, slots=True)
class Order:
    """A package image to be had. `built`: it is there; else it is built from `configuration`."""

    recipe: Recipe
    name: str
    base: ImageInfo
    built: ImageInfo | None = None
    configuration: "indexes.Configuration | None" = None


def order_image(warden: PackageWarden, recipe: Recipe, *, again: bool = False) -> Order:
    """Exactly this recipe's image, removed first where it is wanted `again`; where it isn't there, how this host gets
    packages is read as its user has it. Raises SandboxdError."""
    (base,) = warden.images(recipe.base_image)
    name = recipe.image_name(base.id)
    found = _find(warden, name)
    if found and not again:
        return Order(recipe, name, base, built=found)
    configuration = _read_configuration(recipe)
    if found:
        with contextlib.suppress(SandboxdError):  # a container still runs it: it stays, and loses its name
            warden.remove_image(name)
    return Order(recipe, name, base, configuration=configuration)


def order_package(warden: PackageWarden, recipe: Recipe) -> Order:
    """As `order_image`, for a run: where the recipe says no more than the package, an image that an operator built of
    it with constraints, with scripts or on another base will do. Raises SandboxdError."""
    (base,) = warden.images(recipe.base_image)
    name = recipe.image_name(base.id)
    built = _find(warden, name)
    if built is None and recipe == Recipe(recipe.package):
        there = warden.images()
        bases = {base.id, *(image.id for image in there if image.names)}  # not one that was built anew since
        of_package = (image for image in there if image.labels.get("sandboxd.package") == str(recipe.package))
        built = next((image for image in of_package if image.labels.get("sandboxd.base") in bases), None)
    return Order(recipe, name, base, built, None if built else _read_configuration(recipe))


def _find(warden: PackageWarden, name: str) -> ImageInfo | None:
    try:
        (found,) = warden.images(name)
    except SandboxdError as error:
        if error.code != "image_missing":
            raise
        return None
    return found


def _read_configuration(recipe: Recipe) -> "indexes.Configuration":
    """And import what a build needs, while the interpreter's files can be read for sure."""
    from sandboxd.controller import indexes

    for late in _LATE:
        importlib.import_module(late)
    return indexes.read_configuration(recipe.package)


def build(
    warden: PackageWarden, leases: Leases, order: Order, pins: tuple[Pin, ...], report: Report, progress: Report
) -> ImageInfo:
    """The image, built unless it is there. `pins`: the operator's, which stand over what this host resolves.
    `progress` gets each line of the installer: it comes out of the container. Raises SandboxdError."""
    if order.built or not order.configuration:
        assert order.built
        return order.built
    index = _index(warden, leases, order, report)
    report(f"installing {order.recipe.package} in a sealed container that may reach {', '.join(index.allows)}")
    spec = ContainerSpec(
        sandbox=ids.sandbox_id(),
        agent=AGENT,
        workload=f"build:{order.recipe.package.registry}",
        image=order.base.id,
        resources=RESOURCES,
        build=True,
        files=index.files | _constraints(order.recipe),
    )
    with open_sandbox(warden, spec, _scope(index, pins), leases, report) as sandbox:
        installed = _install(warden, sandbox, order, index, progress)
    report(f"{order.name}: {_contents(installed)}")
    (image,) = warden.images(order.name)
    return image


def _contents(installed: Installed) -> str:
    packages_ = f"{len(installed.lock)} package{'s' if len(installed.lock) != 1 else ''}"
    return f"{packages_}, programs {', '.join(sorted(installed.programs)) or 'none'}"


def _index(warden: PackageWarden, leases: Leases, order: Order, report: Report) -> "indexes.Index":
    """Where this host has no npm and no setting, npm's own default stands: the image's npm tells it."""
    from sandboxd.controller import indexes

    found = order.configuration
    assert found
    if found.url is None:
        found = replace(found, url=_ask_image(warden, leases, order.base, report))
    return indexes.find_index(order.recipe.package, found)


def _ask_image(warden: PackageWarden, leases: Leases, base: ImageInfo, report: Report) -> str:
    from sandboxd.controller.collect import collect

    spec = ContainerSpec(ids.sandbox_id(), AGENT, "build:npm", base.id)
    with open_sandbox(warden, spec, Scope(), leases, report) as sandbox:
        streams = sandbox.launch(("npm", "config", "get", "registry"), BASICS, "/")
        try:
            answer = collect(streams, seconds=limits.INDEX, most=limits.KIB)
        finally:
            close_streams(streams)
        sandbox.ended(answer.exited)
    return answer.stdout.decode(errors="replace").strip()


def _constraints(recipe: Recipe) -> dict[str, str]:
    return {install.CONSTRAINTS: "\n".join(recipe.constraints) + "\n"} if recipe.constraints else {}


def _scope(index: "indexes.Index", pins: tuple[Pin, ...]) -> Scope:
    """The install policy: the index and where its files are, nothing else."""
    from sandboxd.policy.shortform import egress_from_allows

    said = {pin.host for pin in pins}
    return Scope(
        (egress_from_allows(index.allows).to_wire(),), (*pins, *(pin for pin in index.pins if pin.host not in said))
    )


def _command(recipe: Recipe, index: "indexes.Index") -> list[str]:
    package = recipe.package
    if package.registry == "npm":
        return install.npm_command(package.requirement, package.name, scripts=recipe.scripts)
    return install.pip_command(
        package.requirement,
        package.name,
        constrained=bool(recipe.constraints),
        scripts=recipe.scripts,
        trusted=index.trusted,
    )


def _install(
    warden: PackageWarden, sandbox: Sandbox, order: Order, index: "indexes.Index", progress: Report
) -> Installed:
    """Run the installer, commit the container while it waits, let it go."""
    streams = sandbox.launch(_command(order.recipe, index), BASICS | index.env, "/")
    try:
        line = _await_result(streams, progress)
        if line is None:
            _fail_install(sandbox, streams, order.recipe)
        installed = packages.parse_result(line)
        warden.commit(sandbox.id, order.name, packages.labels(order.recipe, order.base.id, sandbox.id, installed))
        streams.attach.shutdown(socket.SHUT_WR)
        sandbox.ended(_read_end(streams))
    finally:
        close_streams(streams)
    return installed


def _read_end(streams: Streams) -> Exited:
    """Scripts of a package may keep the installer from ending: then it is removed as it is."""
    streams.exit.settimeout(limits.STOP_LOST)
    return read_exit(streams.exit)


def _fail_install(sandbox: Sandbox, streams: Streams, recipe: Recipe) -> NoReturn:
    exited = _read_end(streams)
    sandbox.ended(exited)
    why = "it needed more memory than a build has" if exited.oom else f"the installer ended with {exited.code}"
    hint = f"its own words are above; sandboxd audit ls --sandbox {sandbox.id} shows what it reached"
    if not recipe.scripts:
        hint += f"; if it must run code to install: sandboxd image build {recipe.package} --scripts"
    raise SandboxdError("install_failed", f"{recipe.package} can't be installed: {why}", hint=hint)


def _await_result(streams: Streams, progress: Report) -> bytes | None:
    """The result's line without its mark; None where the installer ended without one. Raises SandboxdError."""
    began = time.monotonic()
    frames, lines = FrameReader(), (LineSplitter(limits.PACKAGE_RESULT), LineSplitter(limits.KIB))
    while True:
        ready = select.select([streams.attach], [], [], limits.PACKAGE_QUIET)[0]
        if time.monotonic() - began > limits.PACKAGE_BUILD:
            why = f"not installed after {limits.PACKAGE_BUILD:.0f} s"
            raise SandboxdError("timeout", why, hint="is the index slow? try again")
        if not ready:
            progress(f"… {time.monotonic() - began:.0f} s")
            continue
        data = streams.attach.recv(65536)
        if not data:
            return None
        for stream, piece in frames.feed(data):
            for line in lines[stream != STDOUT].feed(piece):
                if isinstance(line, OverLong):
                    continue
                if stream == STDOUT and line.startswith(install.MARK):
                    return line.removeprefix(install.MARK)
                if text := line.decode(errors="replace").rstrip():
                    progress(text)
