"""Shared fixtures. Docker tests need root and an engine; they fail, never skip, where it is missing."""

import hypothesis

# An example that takes long on a busy machine is no failure.
hypothesis.settings.register_profile("sandboxd", deadline=None)
hypothesis.settings.load_profile("sandboxd")
