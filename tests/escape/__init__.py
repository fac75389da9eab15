"""Attempts to get out of a sandbox, each with what must be seen inside, in the audit log and outside."""
