"""One file a command; typer and rich live here only."""
