"""sandboxd: runs MCP servers and shells nobody here wrote, sealed, under an egress policy outside their reach."""

__version__ = "0.1.0"
