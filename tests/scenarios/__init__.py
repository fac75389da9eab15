"""Whole journeys: real MCP servers that nobody here wrote, driven through `sandboxd run` by real clients."""
