"""Audit: what was decided and what happened. `events` is the model, `store` the SQLite sink and its queries."""
