"""A proof that is skipped proves nothing: where a conftest imports this hook, a skip is a failure."""

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    """Turn a skipped report into a failed one."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and must not be: {report.longrepr}"
    return report
