"""Audit sinks for tests."""

import threading

from sandboxd.audit.events import Event, SinkError


class MemorySink:
    """Keeps what it was given; `broken` refuses everything. `wait_for` waits for a record that fits."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.broken = False
        self._changed = threading.Condition()

    def emit(self, event: Event) -> None:
        if self.broken:
            raise SinkError("the disk is full")
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def flush(self) -> None:
        if self.broken:
            raise SinkError("the disk is full")

    def close(self) -> None: ...

    def wait_for(self, event: str, count: int = 1, seconds: float = 20, **fields: object) -> list[Event]:
        """At least `count` records of this kind whose fields are these; fails where they don't come."""

        def found() -> list[Event]:
            return [e for e in self.events if e.event == event and all(getattr(e, k) == v for k, v in fields.items())]

        with self._changed:
            self._changed.wait_for(lambda: len(found()) >= count, seconds)
            assert len(found()) >= count, f"no {event} {fields} among {self.events}"
            return found()
