"""Runs tool calls, the one way for all of them: admission → gates → source → outcome → record. Never raises.

A call belongs to the executor, not to whoever waits for it: one that waits for approval lives on when its client goes
away, and its result is kept under its id. Called by the service, by `sandboxd call` and by whoever embeds this. Not
here: what may run (`admission`, gates), what becomes of a result (`outcome`), who runs it (`ToolSource`).
"""

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.tools.admission import Admission, Refusal
from sandboxd.tools.model import Call, ErrorKind, Gated, Progress, Result, Tool, ToolError, error_content
from sandboxd.tools.outcome import Outcome
from sandboxd.tools.ports import Approvals, Ask, Context, Gate, Question, Record, ToolSource


async def allow_all(_call: Call, _tool: Tool) -> Gated:
    """The gate of an agent that has none."""
    return Gated()


def no_record(_call: Call, _tool: Tool | None, _result: Result) -> None:
    """For who records otherwise."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How calls are run. `timeouts`: seconds by source, `timeout` for the others."""

    max_concurrency: int = limits.CALLS_AT_ONCE
    timeout: float = limits.TOOL_CALL
    timeouts: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(eq=False, slots=True)
class _Job:
    """A call that is being run. `waiting`: for someone's approval."""

    call: Call
    hash: str
    progress: Progress | None
    ask: Ask | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    waiting: bool = False
    gate: Gated = field(default_factory=Gated)
    tool: Tool | None = None
    result: Result | None = None


class Executor:
    """A context: calls run while it is open, and none is left when it has closed. `sources` by their names."""

    def __init__(
        self,
        admission: Admission,
        sources: Mapping[str, ToolSource],
        outcome: Outcome,
        *,
        gate: Gate = allow_all,
        approvals: Approvals | None = None,
        record: Record = no_record,
        settings: Settings | None = None,
    ) -> None:
        self.admission = admission
        self._sources = sources
        self._outcome = outcome
        self._gate = gate
        self._approvals = approvals
        self._record = record
        self._settings = settings or Settings()
        self._jobs: dict[str, _Job] = {}
        self._kept: OrderedDict[str, tuple[str, Result]] = OrderedDict()
        self._group: TaskGroup

    async def __aenter__(self) -> Self:
        self._places = anyio.Semaphore(self._settings.max_concurrency)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(kind, error, trace)

    async def call(self, call: Call, *, progress: Progress | None = None, ask: Ask | None = None) -> Result:
        """What it comes to. The id of a call that is over gives its result again; of one that runs, the result that it
        will have. Where the caller is cancelled so is the call, unless it waits for approval."""
        hash_ = call.hash(self.admission.agent)
        kept = self._kept.get(call.id)
        job = self._jobs.get(call.id)
        known = kept[0] if kept else job.hash if job else hash_
        if known != hash_:
            message = f"call {call.id!r} is another call already"
            return Result(call.id, call.tool, error_content(message), ErrorKind.CONFLICT)
        if kept:
            return kept[1]
        if job is None:
            job = self._start(_Job(call, hash_, progress, ask))
        try:
            await job.done.wait()
        except anyio.get_cancelled_exc_class():
            self.cancel(call.id)
            raise
        assert job.result is not None
        return job.result

    def cancel(self, id_: str) -> bool:
        """Whether that call is being cancelled: it is running, and doesn't wait for approval."""
        job = self._jobs.get(id_)
        if job is None or job.waiting:
            return False
        job.scope.cancel()
        return True

    def recover(self) -> None:
        """Go on with what an earlier controller left waiting. What it was running when it ended never runs again."""
        for question in self._approvals.unfinished() if self._approvals else ():
            if question.state == "used":
                message = "the controller ended while the tool ran; whether it took effect is not known"
                lost = Result(question.call.id, question.call.tool, error_content(message), ErrorKind.TRANSPORT_LOST)
                assert self._approvals is not None
                self._approvals.done(question.id, lost)
            elif question.call.id not in self._jobs:
                self._start(_Job(question.call, question.hash, None, None))

    def _start(self, job: _Job) -> _Job:
        self._jobs[job.call.id] = job
        self._group.start_soon(self._run, job)
        return job

    async def _run(self, job: _Job) -> None:
        began = time.monotonic()
        result = self._failed(job, ErrorKind.CANCELLED, "cancelled")
        try:
            with job.scope:
                result = await self._attempt(job)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not take other calls along
            result = self._failed(job, ErrorKind.INTERNAL, f"sandboxd failed: {type(error).__name__}")
        finally:
            job.result = replace(result, gate=job.gate, seconds=time.monotonic() - began)
            self._commit(job, job.result)

    def _commit(self, job: _Job, result: Result) -> None:
        self.admission.spent.add(self._outcome.size(result.content), result.seconds)
        del self._jobs[job.call.id]
        self._kept[job.call.id] = (job.hash, result)
        if len(self._kept) > limits.RESULTS_KEPT:
            self._kept.popitem(last=False)
        try:
            self._record(job.call, job.tool, result)
        finally:
            job.done.set()

    async def _attempt(self, job: _Job) -> Result:
        try:
            job.tool = tool = self.admission.admit(job.call)
            job.gate = await self._gate(job.call, tool)
            if job.gate.action == "deny":
                reason = f": {job.gate.reason}" if job.gate.reason else ""
                raise Refusal(ErrorKind.DENIED, f'tool "{tool.name}" was denied{reason}')
            if job.gate.action == "ask":
                return await self._ask(job, tool)
            return await self._perform(job, tool)
        except Refusal as refusal:
            return self._failed(job, refusal.kind, refusal.message)
        except SandboxdError as error:
            return self._failed(job, ErrorKind.INTERNAL, error.message)

    async def _perform(self, job: _Job, tool: Tool) -> Result:
        source = self._sources[tool.source]
        timeout = self._settings.timeouts.get(tool.source, self._settings.timeout)
        context = Context(job.call.id, timeout, job.call.meta, job.progress)
        async with self._places:
            try:
                with anyio.fail_after(timeout):
                    content = await source.call(tool.raw_name, job.call.arguments, context)
            except ToolError as error:
                return self._failed(job, error.kind, _words(tool, error.message))
            except TimeoutError:
                return self._failed(job, ErrorKind.TIMED_OUT, _words(tool, f"timed out after {timeout:g} s"))
        return self._outcome.of(job.call, tool, content)

    # --- approval ------------------------------------------------------------------------------------------------

    async def _ask(self, job: _Job, tool: Tool) -> Result:
        question = None
        if self._approvals is not None:
            question = self._approvals.ask(job.call, job.hash, job.gate)
            if question.result is not None:
                return question.result
        elif job.ask is None:
            message = f'tool "{tool.name}" needs a confirmation, and nobody can be asked'
            raise Refusal(ErrorKind.CONFIRMATION_REQUIRED, message)
        job.waiting = True
        try:
            await (self._asked(job, tool) if question is None else self._approved(job, tool, question))
        finally:
            job.waiting = False
        result = await self._perform(job, tool)
        if question is not None and self._approvals is not None:
            self._approvals.done(question.id, result)
        return result

    async def _asked(self, job: _Job, tool: Tool) -> None:
        """Without a store the one who calls is the only one to ask. Raises Refusal."""
        assert job.ask is not None
        answer = await job.ask(words_of(job.call, job.gate))
        if answer is None:
            raise Refusal(ErrorKind.CONFIRMATION_REQUIRED, f'tool "{tool.name}" needs a confirmation; nobody answered')
        if not answer.approve:
            raise Refusal(ErrorKind.DENIED, _refused(tool, answer.reason))

    async def _approved(self, job: _Job, tool: Tool, question: Question) -> None:
        """Returns once the call may run, and has been taken by this executor. Raises Refusal."""
        assert self._approvals is not None
        async with anyio.create_task_group() as group:
            if job.ask is not None:
                group.start_soon(self._elicit, job, question, job.ask)
            while (question := self._approvals.look(question.id)).state == "pending":
                await anyio.sleep(limits.APPROVAL_LOOK)
            group.cancel_scope.cancel()
        if question.state == "approved" and self._approvals.use(question.id, job.hash):
            return
        if question.state == "denied":
            raise Refusal(ErrorKind.DENIED, _refused(tool, question.reason))
        if question.state == "expired":
            raise Refusal(ErrorKind.APPROVAL_EXPIRED, f'nobody approved the call of tool "{tool.name}" in time')
        raise Refusal(ErrorKind.CONFLICT, f'the approval of this call of tool "{tool.name}" was used already')

    async def _elicit(self, job: _Job, question: Question, ask: Ask) -> None:
        answer = await ask(words_of(job.call, job.gate))
        if answer is not None and self._approvals is not None:
            self._approvals.answer(question.id, answer)

    def _failed(self, job: _Job, kind: ErrorKind, message: str) -> Result:
        return Result(job.call.id, job.call.tool, self._outcome.error(message), kind)


def _words(tool: Tool, message: str) -> str:
    return f'MCP tool "{tool.name}" failed: {message}' if tool.kind == "mcp" else message


def _refused(tool: Tool, reason: str) -> str:
    return f'the call of tool "{tool.name}" was not approved' + (f": {reason}" if reason else "")


def words_of(call: Call, gate: Gated) -> str:
    """The question to whoever approves: exactly what would run."""
    import json

    arguments = json.dumps(call.arguments, ensure_ascii=True, indent=1, sort_keys=True)
    shown = arguments if len(arguments) <= limits.QUESTION_TEXT else arguments[: limits.QUESTION_TEXT] + " …"
    why = f" ({gate.reason})" if gate.reason else ""
    return f"Run tool {call.tool} with these arguments?{why}\n{shown}"
