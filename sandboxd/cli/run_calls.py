"""Binds what a `run` hears of the gateway to what it tells it: tool calls in flight, denials. Called by `run`."""

import contextlib
from collections.abc import Generator

from sandboxd.controller.news import News
from sandboxd.controller.outlets import Outlet
from sandboxd.controller.sandbox import Sandbox
from sandboxd.controller.tool_calls import ToolCalls


@contextlib.contextmanager
def open_calls(
    sandbox: Sandbox, stderr: Outlet, *, prefix: str | None, annotate: bool, short_form: bool
) -> Generator[ToolCalls, None, None]:
    """For the relay. Raises SandboxdError where the gateway does not answer."""
    news = News(sandbox.id)
    try:
        sandbox.listen(news.follow, news.board)
        yield ToolCalls(
            news,
            lambda: sandbox.by_tool,
            lambda text: stderr.send(f"sandboxd: {text}\n".encode()),
            prefix=prefix,
            annotate=annotate,
            short_form=short_form,
        )
    finally:
        sandbox.listen(None)
        news.close()
