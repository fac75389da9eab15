"""The whole policy document."""

from sandboxd.policy.egress import EgressPolicy, EgressRule

__all__ = ["EgressPolicy", "EgressRule"]
