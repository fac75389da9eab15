"""Messages are frozen dataclasses like any other, only cheaper to define."""

import dataclasses

import pytest

from sandboxd.channel import message


@message
class Point:
    """Two numbers and their names."""

    x: int
    y: int = 2
    names: list[str] = dataclasses.field(default_factory=list[str])


@message
class Other:
    """The same fields."""

    x: int
    y: int = 2
    names: list[str] = dataclasses.field(default_factory=list[str])


def test_made_and_compared() -> None:
    point = Point(1, names=["a"])
    assert (point.x, point.y, point.names) == (1, 2, ["a"])
    assert point == Point(x=1, names=["a"])
    assert point != Point(2, names=["a"])
    assert Point(1) != Other(1)
    assert Point(1).names is not Point(1).names
    assert repr(point) == "Point(x=1, y=2, names=['a'])"


def test_like_a_dataclass() -> None:
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "names": []}
    match Point(1, 3):
        case Point(x, y):
            assert (x, y) == (1, 3)
    assert not hasattr(Point(1), "__dict__")


def test_frozen_and_hashable() -> None:
    @message
    class Name:
        """A name."""

        text: str

    assert {Name("a"), Name("a")} == {Name("a")}
    with pytest.raises(dataclasses.FrozenInstanceError):
        Name("a").text = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Name("a").text


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, [], 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_fields(values: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Point(*values, **named)  # type: ignore[arg-type]


def test_a_message_shows_itself_its_own_way() -> None:
    @message
    class Secret:
        """One that hides."""

        value: str

        def __repr__(self) -> str:
            return "Secret(…)"

    assert repr(Secret("hunter2")) == "Secret(…)"
