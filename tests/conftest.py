"""Shared fixtures. Docker tests need root and an engine; they fail, never skip, where it is missing."""
