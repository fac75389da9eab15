"""A failing audit log is told once, not once a record."""

import logging

import pytest

from sandboxd.audit.events import Event, SinkError
from sandboxd.egress.gateway.watched_sink import WatchedSink
from tests.kit.playbook import SUBJECT
from tests.kit.sinks import MemorySink

EVENT = Event("id", 0.0, "finding", SUBJECT)


def test_failure_and_recovery_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    inner = MemorySink()
    sink = WatchedSink(inner)
    sink.emit(EVENT)
    inner.broken = True
    for _ in range(3):
        with pytest.raises(SinkError):
            sink.emit(EVENT)
    inner.broken = False
    sink.emit(EVENT)
    sink.emit(EVENT)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert len(inner.events) == 3
