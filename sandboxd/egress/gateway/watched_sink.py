"""The audit sink as the gateway uses it: says once that it fails, and once that it works again.

What can't be recorded is denied by whoever asked; this only tells the operator why. Called by `process`.
"""

import logging
import threading

from sandboxd.audit.events import Event, Sink, SinkError

log = logging.getLogger(__name__)


class WatchedSink:
    """`sandboxd.audit.events.Sink` around another; any thread may call it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._failing = False
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Raises SinkError as the sink does."""
        try:
            self._sink.emit(event)
        except SinkError as error:
            self._tell(str(error))
            raise
        if self._failing:
            self._tell("")

    def flush(self) -> None:
        """Raises SinkError as the sink does."""
        self._sink.flush()

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    def _tell(self, failure: str) -> None:
        with self._lock:
            if self._failing == bool(failure):
                return
            self._failing = bool(failure)
        if failure:
            log.error("the audit log takes no records, so everything is denied: %s", failure)
        else:
            log.warning("the audit log takes records again")
