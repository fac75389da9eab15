"""`encode_orders`: the exact bytes, and every refusal."""

import pytest

from sandboxd.errors import UsageError
from sandboxd.limits import GATE_ORDERS
from sandboxd.warden.server.orders import encode_orders


def test_the_encoding_is_exact():
    orders = b"sandboxd1\0" + b"15099\0" + b"2\0sh\0-i\0" + b"1\0A=b=c\0" + b"/srv\0"
    assert encode_orders(["sh", "-i"], {"A": "b=c"}, "/srv", 15099) == len(orders).to_bytes(4) + orders


def test_bytes_that_are_not_utf8_survive():
    assert b"\0\xff\0" in encode_orders(["a", "\udcff"], {}, "/", 0)


@pytest.mark.parametrize(
    ("argv", "env", "cwd", "port", "says"),
    [
        ([], {}, "/", 0, "command is empty"),
        (["a", "b\0c"], {}, "/", 0, "argument 1 has a NUL"),
        (["a"], {"A=B": ""}, "/", 0, "not a name"),
        (["a"], {"": "x"}, "/", 0, "not a name"),
        (["a"], {"A": "s3cret\0"}, "/", 0, "value of 'A' has a NUL"),
        (["a"], {"A\0": "s3cret"}, "/", 0, "name of a variable has a NUL"),
        (["a"], {"A": "s3cret\ud800"}, "/", 0, "value of 'A' can't be encoded"),
        (["a"], {}, "srv", 0, "not an absolute"),
        (["a"], {}, "/a\0", 0, "directory has a NUL"),
        (["a"], {}, "/", 65536, "not a port"),
        (["a"], {"A": "s3cret" * GATE_ORDERS}, "/", 0, "expected at most 1048576"),
    ],
)
def test_refused(argv: list[str], env: dict[str, str], cwd: str, port: int, says: str):
    with pytest.raises(UsageError) as refusal:
        encode_orders(argv, env, cwd, port)
    assert says in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
