"""The controller: opens sandboxes through the warden, tells the gateway what they may reach, relays MCP. Runs without
privileges once it has read what only root may read. Not here: Docker, namespaces, verdicts."""
