"""Shared fixtures. Docker tests need root and an engine; they fail, never skip, where it is missing."""

import os

import hypothesis

# An example that takes long on a busy machine is no failure.
hypothesis.settings.register_profile("sandboxd", deadline=None)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=2000)  # deploy/soak asks for it
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "sandboxd"))
