"""The server that is measured: standard library only, answers initialize, tools/list and anything else at once."""

import json
import sys

for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    result: dict[str, object] = {}
    if message["method"] == "initialize":
        info = {"name": "echo", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()
