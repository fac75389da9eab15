"""What an attempt is: a call inside, the exact answer there, the exact records outside, what may reach the site."""

import os
from dataclasses import dataclass, field
from typing import Any

# In everything that a denied attempt sends: the packet capture looks for it. Letters and digits fit a label.
MARK = f"m{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`call`: `module.function` of `inside`; `args`: its arguments. `inside`: exactly what it must return.

    `records`: exactly the lines (`record_line`) of the denials, allowed decisions and allowed requests it may cause;
    answers to allowed names and the ends of connections are not listed. `reaches`: connections that arrive at the site,
    -1 for any number but none. `alone`: in a sandbox of its own, since it uses up what others need.
    """

    id: str
    call: str
    args: tuple[Any, ...] = ()
    inside: Any = None
    records: frozenset[str] = field(default_factory=frozenset[str])
    policy: str = "main"
    reaches: int = 0
    unix_sockets: bool = True
    alone: bool = False


def attempt(name: str, call: str, *args: Any, inside: Any, records: tuple[str, ...] = (), **more: Any) -> Attempt:
    """An attempt as tables write it."""
    return Attempt(name, call, args, inside, frozenset(records), **more)
