"""The one way of a call: what stops it where, what its caller gets, and that nothing runs twice or unapproved."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from sandboxd.policy.calls import Budgets, ToolPolicy
from sandboxd.tools.admission import Admission
from sandboxd.tools.executor import Executor, Settings
from sandboxd.tools.grants import Grants
from sandboxd.tools.model import Call, ErrorKind, Gated, JsonObject, Result, Tool, ToolError
from sandboxd.tools.outcome import Outcome
from sandboxd.tools.ports import Answer, Context, Question, State
from sandboxd.tools.registry import Registry, mcp_tools

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def text(words: str, **more: Any) -> JsonObject:
    return {"content": [{"type": "text", "text": words}], **more}


class Source:
    """Runs `act` for every call, and counts."""

    def __init__(self, act: Callable[[str, JsonObject], Any] = lambda tool, arguments: text(f"{tool} ran")) -> None:
        self.act = act
        self.ran: list[tuple[str, JsonObject]] = []
        self.at_once = self.most = 0
        self.cancelled = 0

    async def call(self, tool: str, arguments: JsonObject, context: Context) -> Any:
        self.ran.append((tool, arguments))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            answer = self.act(tool, arguments)
            return await answer if hasattr(answer, "__await__") else answer
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self.at_once -= 1


class Store:
    """Approvals in memory, as the state database holds them."""

    def __init__(self) -> None:
        self.questions: dict[str, Question] = {}
        self.uses = 0

    def ask(self, call: Call, hash: str, gate: Gated) -> Question:
        return self.questions.setdefault(call.id, Question(call.id, call, hash, "pending"))

    def look(self, question: str) -> Question:
        return self.questions[question]

    def answer(self, question: str, answer: Answer) -> None:
        if self.questions[question].state == "pending":
            self.become(question, "approved" if answer.approve else "denied", answer.reason)

    def use(self, question: str, hash: str) -> bool:
        found = self.questions[question]
        if found.state != "approved" or found.hash != hash:
            return False
        self.become(question, "used")
        self.uses += 1
        return True

    def done(self, question: str, result: Result) -> None:
        self.questions[question] = replace(self.questions[question], result=result)

    def unfinished(self) -> Sequence[Question]:
        return [q for q in self.questions.values() if q.state in ("pending", "approved", "used") and q.result is None]

    def become(self, question: str, state: State, reason: str = "") -> None:
        self.questions[question] = replace(self.questions[question], state=state, reason=reason)


def admission(check: Callable[[Tool, JsonObject], str] = lambda *_: "", **budgets: Any) -> Admission:
    registry = Registry()
    registry.register(mcp_tools("mcp:gh", [{"name": "search"}, {"name": "delete"}, {"name": "hidden"}], "gh_"))
    grants = Grants(ToolPolicy(allow=("gh_*",), deny=("gh_hidden",)))
    return Admission("coder", registry, grants, check, Budgets(**budgets))


async def asking(_call: Call, _tool: Tool) -> Gated:
    return Gated("ask", "gates.rules[0]", "look first")


@asynccontextmanager
async def executor(source: Source, **keys: Any) -> AsyncIterator[Executor]:
    outcome = Outcome(text=lambda block: f"[{block['type']}]")
    async with Executor(keys.pop("admission", admission()), {"mcp:gh": source}, outcome, **keys) as open_:
        yield open_


def said(result: Result) -> str:
    return " ".join(block["text"] for block in result.content["content"])


async def test_a_call_runs_under_its_raw_name_and_its_result_comes_back_whole() -> None:
    answer = text("hi", structuredContent={"a": 1}, _meta={"x": 2}, unknown=[3])
    source = Source(lambda *_: answer)
    async with executor(source) as e:
        result = await e.call(Call("1", "gh_search", {"q": "x"}))
    assert (source.ran, result.content, result.error) == ([("search", {"q": "x"})], answer, None)


@pytest.mark.parametrize(
    ("tool", "kind", "words"),
    [
        ("gh_nothing", ErrorKind.UNKNOWN_TOOL, "unknown tool 'gh_nothing'"),
        ("search", ErrorKind.UNKNOWN_TOOL, "unknown tool 'search'"),
        ("gh_hidden", ErrorKind.NOT_GRANTED, 'tool "gh_hidden" is not granted to agent "coder"'),
    ],
)
async def test_what_is_not_there_or_not_granted_never_runs(tool: str, kind: ErrorKind, words: str) -> None:
    source = Source()
    async with executor(source) as e:
        result = await e.call(Call("1", tool, {}))
    assert (result.error, said(result), source.ran) == (kind, words, [])


async def test_arguments_are_checked_before_the_gate_is_asked() -> None:
    asked: list[str] = []

    async def gate(call: Call, _: Tool) -> Gated:
        asked.append(call.id)
        return Gated()

    source = Source()
    async with executor(source, admission=admission(lambda *_: "$.q: expected a string"), gate=gate) as e:
        result = await e.call(Call("1", "gh_search", {"q": 1}))
    assert (result.error, asked, source.ran) == (ErrorKind.INVALID_ARGUMENTS, [], [])
    assert said(result) == 'invalid arguments for tool "gh_search": $.q: expected a string'


async def test_a_denial_says_its_reason_and_names_its_rule() -> None:
    async def gate(_call: Call, _tool: Tool) -> Gated:
        return Gated("deny", "gates.rules[2]", "not on fridays")

    source = Source()
    async with executor(source, gate=gate) as e:
        result = await e.call(Call("1", "gh_delete", {}))
    assert (result.error, result.gate.rule, source.ran) == (ErrorKind.DENIED, "gates.rules[2]", [])
    assert said(result) == 'tool "gh_delete" was denied: not on fridays'


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ToolError(ErrorKind.TRANSPORT_LOST, "gone"), ErrorKind.TRANSPORT_LOST), (KeyError("x"), ErrorKind.INTERNAL)],
)
async def test_whatever_a_source_raises_is_a_result(error: Exception, kind: ErrorKind) -> None:
    def fail(*_: Any) -> None:
        raise error

    async with executor(Source(fail)) as e:
        result = await e.call(Call("1", "gh_search", {}))
        assert (await e.call(Call("2", "gh_search", {}))).error == kind
    assert result.error == kind
    if kind == ErrorKind.TRANSPORT_LOST:
        assert said(result) == 'MCP tool "gh_search" failed: gone'


@pytest.mark.parametrize(
    "answer", [None, 3, [], {}, {"content": "x"}, {"content": [3]}, {"content": [{"type": "text"}]}]
)
async def test_what_is_no_result_is_a_protocol_error(answer: Any) -> None:
    async with executor(Source(lambda *_: answer)) as e:
        assert (await e.call(Call("1", "gh_search", {}))).error == ErrorKind.PROTOCOL


async def test_a_tools_own_error_is_text_only() -> None:
    answer = {"content": [{"type": "text", "text": "no"}, {"type": "image", "data": "AA=="}], "isError": True}
    async with executor(Source(lambda *_: answer)) as e:
        result = await e.call(Call("1", "gh_search", {}))
    assert (result.error, said(result)) == (ErrorKind.TOOL_FAILED, "no [image]")
    assert {block["type"] for block in result.content["content"]} == {"text"}


async def test_a_call_that_takes_too_long_is_cancelled_at_its_source() -> None:
    source = Source(lambda *_: anyio.sleep(60))
    async with executor(source, settings=Settings(timeout=0.05)) as e:
        result = await e.call(Call("1", "gh_search", {}))
    assert (result.error, source.cancelled) == (ErrorKind.TIMED_OUT, 1)
    assert said(result) == 'MCP tool "gh_search" failed: timed out after 0.05 s'


async def test_no_more_calls_at_once_than_the_agent_may_have() -> None:
    async def slow() -> JsonObject:
        await anyio.sleep(0.01)
        return text("")

    source = Source(lambda *_: slow())
    async with executor(source, settings=Settings(max_concurrency=3)) as e, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(e.call, Call(str(number), "gh_search", {}))
    assert (source.most, len(source.ran)) == (3, 20)


async def test_the_same_id_runs_once_and_gives_the_same_result() -> None:
    source = Source()
    async with executor(source) as e:
        first = await e.call(Call("1", "gh_search", {"q": 1}))
        assert await e.call(Call("1", "gh_search", {"q": 1})) is first
        other = await e.call(Call("1", "gh_search", {"q": 2}))
    assert (other.error, len(source.ran)) == (ErrorKind.CONFLICT, 1)


async def test_two_who_ask_for_the_same_call_at_once_share_it() -> None:
    async def slow() -> JsonObject:
        await anyio.sleep(0.02)
        return text("")

    source = Source(lambda *_: slow())
    async with executor(source) as e, anyio.create_task_group() as group:
        group.start_soon(e.call, Call("1", "gh_search", {}))
        group.start_soon(e.call, Call("1", "gh_search", {}))
    assert len(source.ran) == 1


async def test_a_caller_that_goes_away_cancels_its_call() -> None:
    source = Source(lambda *_: anyio.sleep(60))
    async with executor(source) as e:
        with anyio.move_on_after(0.05):
            await e.call(Call("1", "gh_search", {}))
        result = await e.call(Call("1", "gh_search", {}))
    assert (result.error, source.cancelled) == (ErrorKind.CANCELLED, 1)


async def test_a_budget_of_calls_is_used_up() -> None:
    source = Source()
    async with executor(source, admission=admission(calls=2)) as e:
        results = [(await e.call(Call(str(n), "gh_search", {}))) for n in range(3)]
    assert [r.error for r in results] == [None, None, ErrorKind.BUDGET]
    assert said(results[2]) == "the run's budget of 2 calls is used up"
    assert len(source.ran) == 2


# --- approvals -----------------------------------------------------------------------------------------------------


async def test_nobody_to_ask_and_no_store_runs_nothing() -> None:
    source = Source()
    async with executor(source, gate=asking) as e:
        result = await e.call(Call("1", "gh_delete", {}))
    assert (result.error, source.ran) == (ErrorKind.CONFIRMATION_REQUIRED, [])


@pytest.mark.parametrize("approve", [True, False])
async def test_whoever_calls_is_asked(approve: bool) -> None:
    source, questions = Source(), list[str]()

    async def ask(question: str) -> Answer:
        questions.append(question)
        return Answer(approve, "client", reason="because")

    async with executor(source, gate=asking, approvals=Store()) as e:
        result = await e.call(Call("1", "gh_delete", {"path": "x"}), ask=ask)
    assert len(source.ran) == approve
    assert result.error == (None if approve else ErrorKind.DENIED)
    assert "gh_delete" in questions[0]
    assert '"path": "x"' in questions[0]
    if not approve:
        assert said(result) == 'the call of tool "gh_delete" was not approved: because'


async def test_an_approval_from_elsewhere_lets_the_very_call_run_once() -> None:
    source, store = Source(), Store()
    async with executor(source, gate=asking, approvals=store) as e, anyio.create_task_group() as group:
        group.start_soon(e.call, Call("1", "gh_delete", {"a": 1}))
        await anyio.wait_all_tasks_blocked()
        assert source.ran == []
        store.become("1", "approved")
    assert (source.ran, store.uses) == ([("delete", {"a": 1})], 1)
    assert store.questions["1"].result is not None


async def test_a_call_that_waits_outlives_its_client_and_its_result_is_kept() -> None:
    source, store = Source(), Store()
    async with executor(source, gate=asking, approvals=store) as e:
        with anyio.move_on_after(0.05):
            await e.call(Call("1", "gh_delete", {}))
        assert not e.cancel("1")
        store.become("1", "approved")
        result = await e.call(Call("1", "gh_delete", {}))
    assert (result.error, len(source.ran)) == (None, 1)


async def test_a_restarted_controller_goes_on_waiting() -> None:
    source, store = Source(), Store()
    async with executor(source, gate=asking, approvals=store) as e:
        with anyio.move_on_after(0.05):
            await e.call(Call("1", "gh_delete", {}))
    assert store.questions["1"].state == "pending"
    store.become("1", "approved")
    async with executor(source, gate=asking, approvals=store) as e:
        e.recover()
        assert (await e.call(Call("1", "gh_delete", {}))).error is None
    assert len(source.ran) == 1


async def test_what_ran_when_the_controller_died_never_runs_again() -> None:
    source, store = Source(), Store()
    call = Call("1", "gh_delete", {})
    store.questions["1"] = Question("1", call, call.hash("coder"), "used")
    async with executor(source, gate=asking, approvals=store) as e:
        e.recover()
        result = await e.call(call)
    assert (result.error, source.ran) == (ErrorKind.TRANSPORT_LOST, [])


@pytest.mark.parametrize(
    ("state", "kind"),
    [("denied", ErrorKind.DENIED), ("expired", ErrorKind.APPROVAL_EXPIRED), ("used", ErrorKind.CONFLICT),
     ("withdrawn", ErrorKind.CONFLICT)],
)  # fmt: skip
async def test_only_an_approval_lets_it_run(state: State, kind: ErrorKind) -> None:
    source, store = Source(), Store()
    async with executor(source, gate=asking, approvals=store) as e, anyio.create_task_group() as group:
        results: list[Result] = []

        async def call() -> None:
            results.append(await e.call(Call("1", "gh_delete", {})))

        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        store.become("1", state)
    assert (results[0].error, source.ran) == (kind, [])


async def test_an_approval_of_other_arguments_is_worth_nothing() -> None:
    source, store = Source(), Store()
    edited = Call("1", "gh_delete", {"path": "/"})
    store.questions["1"] = Question("1", edited, Call("1", "gh_delete", {"path": "x"}).hash("coder"), "approved")
    async with executor(source, gate=asking, approvals=store) as e:
        assert (await e.call(edited)).error == ErrorKind.CONFLICT
    assert source.ran == []


async def test_every_call_is_recorded_with_its_gate_and_error() -> None:
    seen: list[tuple[str, ErrorKind | None, str]] = []

    def record(call: Call, tool: Tool | None, result: Result) -> None:
        seen.append((call.tool, result.error, result.gate.action))

    async with executor(Source(), gate=asking, record=record) as e:
        await e.call(Call("1", "gh_delete", {}))
        await e.call(Call("2", "gh_nothing", {}))
    assert seen == [
        ("gh_delete", ErrorKind.CONFIRMATION_REQUIRED, "ask"), ("gh_nothing", ErrorKind.UNKNOWN_TOOL, "allow"),
    ]  # fmt: skip
