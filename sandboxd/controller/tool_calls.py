"""The tool calls that pass through the relay: the gateway is told of them, and their results of what was denied.

A call is in flight from before the server gets it until it answers, fails, or is cancelled. Which call a denial belongs
to nobody outside the server can tell: it is told to all that were in flight. Called by the relay with every line that
passes. Not here: the words (`denial_words`), the channel to the gateway (`news`).
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sandboxd import limits
from sandboxd.controller.denial_words import annotated, for_model, for_operator, place
from sandboxd.controller.messages import Outcome
from sandboxd.egress.control import Call, Denied
from sandboxd.mcp.connections.envelope import Envelope, Id
from sandboxd.policy.tools import final_name


class Gateway(Protocol):
    """`news.News`."""

    @property
    def fd(self) -> int: ...
    @property
    def waiting(self) -> bool: ...
    def write(self, calls: Sequence[Call]) -> None: ...
    def tell(self, calls: Sequence[Call], *, awaited: bool) -> bool: ...
    def read(self) -> list[Denied]: ...


class _Open:
    """A call in flight, and what was denied meanwhile."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.named: dict[tuple[str, str], Denied] = {}
        self.more = 0

    def add(self, denied: Denied) -> None:
        self.more += denied.missed
        key = (place(denied), denied.reason)
        if key in self.named:
            return
        if len(self.named) < limits.DENIALS_NAMED:
            self.named[key] = denied
        else:
            self.more += 1


class ToolCalls:
    """`by_tool`: whether the policy has rules that are open during calls only. `prefix`: what makes a tool's own name
    its final one. `annotate`: results say what was denied. `say` gets a line for a person; `short_form`: the run's
    rules come from `--allow`."""

    def __init__(
        self,
        gateway: Gateway,
        by_tool: Callable[[], bool],
        say: Callable[[str], None],
        *,
        prefix: str | None = None,
        annotate: bool = True,
        short_form: bool = True,
    ) -> None:
        self._gateway = gateway
        self._by_tool = by_tool
        self._say = say
        self._prefix = prefix
        self._annotate = annotate
        self._short_form = short_form
        self._open: dict[str, _Open] = {}
        self._said: set[str] = set()
        self._ended = False

    @property
    def fd(self) -> int:
        """When it is readable, `ready` is to be called."""
        return self._gateway.fd

    def from_client(self, outcomes: Sequence[Outcome]) -> bool:
        """These are about to pass to the server. Whether they must wait until `ready` says that they needn't."""
        started = ended = False
        for outcome in outcomes:
            for one in _passing(outcome):
                if one.tool is not None and one.kind == "request":
                    started = self._begin(one.id, one.tool) or started
                elif one.method == "notifications/cancelled" and (key := _cancelled(outcome.forward)) in self._open:
                    del self._open[key]
                    ended = True
        if started or ended:
            self._tell(started=started)
        return self._gateway.waiting

    def from_server(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """What passes to the client instead of these: the same, but for results of calls that were denied something."""
        if not self._open:
            return list(outcomes)
        self._hear(self._gateway.read())
        before = len(self._open)
        answered = [self._answered(outcome) for outcome in outcomes]
        self._ended = self._ended or len(self._open) < before
        return answered

    def settle(self) -> None:
        """What `from_server` gave has passed: the client need not wait until it is written down which calls ended."""
        if self._ended:
            self._tell(started=False)

    def ready(self) -> bool:
        """Something came of the gateway. Whether what waited may pass now."""
        self._hear(self._gateway.read())
        return not self._gateway.waiting

    def _tell(self, *, started: bool) -> None:
        """A gateway without rules for tools need not be woken."""
        self._ended = False
        calls = [each.call for each in self._open.values()]
        self._gateway.write(calls)
        if self._by_tool():
            self._gateway.tell(calls, awaited=started)

    def _begin(self, id_: Id, tool: str) -> bool:
        """Whether it is told of: too many at once open nothing."""
        if len(self._open) >= limits.CALLS:
            return False
        key = call_key(id_)
        self._open[key] = _Open(Call(key, _bounded(final_name(self._prefix, tool))))
        return True

    def _answered(self, outcome: Outcome) -> Outcome:
        for one in _answers(outcome):
            refused = self._open.pop(call_key(one.id), None)
            if refused is None:
                continue
            if self._annotate and refused.named and not one.members and outcome.forward:
                text = for_model(list(refused.named.values()), refused.more)
                outcome = outcome._replace(forward=annotated(outcome.forward, text))
        return outcome

    def _hear(self, denials: Sequence[Denied]) -> None:
        for denied in denials:
            for refused in self._open.values():
                refused.add(denied)
            where = place(denied)
            if where not in self._said and len(self._said) < limits.DENIALS_SAID:
                self._said.add(where)
                self._say(for_operator(denied, short_form=self._short_form))


def call_key(id_: Id) -> str:
    """A call's id as it is told and recorded: JSON, bounded, one text for one id."""
    if type(id_) is int:
        return _bounded(str(id_))
    whole = int(id_) if isinstance(id_, float) and id_.is_integer() else id_
    return _bounded(json.dumps(whole))


def _bounded(text: str) -> str:
    """Printable ASCII without spaces, at most `limits.CALL_TEXT` characters; what is cut is told apart by its hash."""
    if len(text) <= limits.CALL_TEXT and text.isascii() and text.isprintable() and " " not in text:
        return text
    plain = "".join(char if "!" <= char <= "~" else "?" for char in text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{plain[: limits.CALL_TEXT - 20]}~{digest}"


def _passing(outcome: Outcome) -> tuple[Envelope, ...]:
    if outcome.fault is not None or outcome.envelope is None:
        return ()
    return outcome.envelope.members or (outcome.envelope,)


def _answers(outcome: Outcome) -> list[Envelope]:
    """Responses, those that are too long to pass too: someone is told that the call is over."""
    if outcome.envelope is None:
        return []
    return [one for one in outcome.envelope.members or (outcome.envelope,) if one.kind == "response"]


def _cancelled(line: bytes) -> str:
    """The key of the call that a `notifications/cancelled` is about; of none where it can't be told."""
    try:
        message: Any = json.loads(line) if len(line) <= limits.MCP_PARSE else None
        id_ = message["params"]["requestId"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return call_key(id_) if isinstance(id_, str | int | float) and id_ not in (float("inf"), float("-inf")) else ""
