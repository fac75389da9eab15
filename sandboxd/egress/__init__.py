"""Egress: what leaves a sandbox. `wire` and `flow` are pure, `gateway` is the process, `control` its protocol."""
