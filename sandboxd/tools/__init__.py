"""The tool runtime: what tools there are, which are granted, what a call must pass, and what becomes of its result.

One way for every call, built-ins, MCP servers and custom tools alike (tools.md): resolve → grant → validate → gate →
run → validate the output → map → truncate → record. `admission` is what comes before the run, `outcome` what comes
after it, both pure; `executor` runs calls between the two. Not here: connections to servers (`mcp.connections`).
"""
