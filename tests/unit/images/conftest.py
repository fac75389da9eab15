"""The gate and its parser, compiled once a session with the system's compiler."""

import ctypes
import subprocess
from pathlib import Path

import pytest

GATE = Path(__file__).parents[3] / "images" / "gate"


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gate as `images/build` builds it."""
    binary = tmp_path_factory.mktemp("gate") / "gate"
    subprocess.run([GATE / "build", "gate", binary], check=True)
    return binary


@pytest.fixture(scope="session")
def check_orders(tmp_path_factory: pytest.TempPathFactory):
    """`orders.h` as a function: bytes → good or not. Aborts the process when the parser breaks its promise."""
    library = tmp_path_factory.mktemp("orders") / "orders.so"
    source = GATE / "fuzz_orders.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-g", "-O1", "-o", library, source], check=True)
    function = ctypes.CDLL(str(library)).check_orders
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_int
    return lambda orders: bool(function(orders, len(orders)))
