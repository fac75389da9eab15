"""Connections to MCP servers over handed-over streams: frames of the attach stream, lines of stdio, envelopes of
messages. Pure: bytes in, values out. Called by the controller's relay. Not here: sockets, sessions, decisions."""
