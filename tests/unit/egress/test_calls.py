"""Which calls are in flight, as the gateway was told: bounded, whatever is told."""

from sandboxd import limits
from sandboxd.egress.calls import CallsInFlight
from sandboxd.egress.control import Call


def test_those_and_no_others() -> None:
    calls = CallsInFlight()
    calls.replace([Call("1", "a"), Call('"x"', "b"), Call("2", "a")])
    assert (calls.tools, calls.labels) == ({"a", "b"}, ("1 a", '"x" b', "2 a"))
    calls.replace([Call("2", "a")])
    assert (calls.tools, calls.labels) == ({"a"}, ("2 a",))
    calls.replace([])
    assert (calls.tools, calls.labels) == (frozenset(), ())


def test_too_many_open_nothing_and_are_counted() -> None:
    calls = CallsInFlight()
    calls.replace([*(Call(str(n), "a") for n in range(limits.CALLS)), Call("more", "b")])
    assert calls.tools == {"a"}
    assert calls.labels[-1] == f"and {limits.CALLS - limits.CALLS_NAMED} more"


def test_too_long_opens_nothing() -> None:
    calls = CallsInFlight()
    calls.replace([Call("1", "a" * (limits.CALL_TEXT + 1)), Call("1" * (limits.CALL_TEXT + 1), "a")])
    assert not calls.tools
