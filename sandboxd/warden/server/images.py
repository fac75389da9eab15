"""Images on this host as clients see them. Only images that carry our labels are listed or removed.

Called by `operations`. Not here: making one (`build`, or `images/`).
"""

from collections.abc import Mapping
from typing import Any, cast

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import ImageInfo
from sandboxd.warden.server.engine import Engine, Json

LABEL = "sandboxd.image"


def list_images(engine: Engine, name: str) -> tuple[ImageInfo, ...]:
    """Ours, newest first; or exactly `name`, whosever it is. Raises SandboxdError `image_missing`."""
    if name:
        return (image_info(engine.inspect_image(name)),)
    found = [image_info(engine.inspect_image(str(image["Id"]))) for image in engine.images(LABEL)]
    return tuple(sorted(found, key=lambda image: image.created, reverse=True))


def remove_image(engine: Engine, name: str) -> None:
    """Raises SandboxdError `image_missing`, `image_foreign`, `image_in_use`."""
    if LABEL not in image_info(engine.inspect_image(name)).labels:
        raise SandboxdError("image_foreign", f"{name} was not made by sandboxd", hint=f"docker image rm {name}")
    engine.remove_image(name)


def image_info(found: Json) -> ImageInfo:
    """Docker's description as ours. Pure."""
    config = cast(Mapping[str, Any], found.get("Config") or {})
    return ImageInfo(
        id=str(found["Id"]),
        names=tuple(found.get("RepoTags") or ()),
        labels=dict(config.get("Labels") or {}),
        size=int(found["Size"]),
        created=_seconds(str(found["Created"])),
        command=(*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())),
        env=tuple(config.get("Env") or ()),
    )


def _seconds(stamp: str) -> float:
    """RFC 3339 as Docker writes it (UTC, nine or fewer digits of fraction)."""
    import datetime  # late: not on the path of a start

    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    try:
        return datetime.datetime.fromisoformat(whole + "+00:00").timestamp() + float("0." + (fraction or "0"))
    except ValueError:
        return 0.0
