"""The MCP server that clients connect to: over stdio, HTTP, WebSocket or the daemon's socket.

Start reading in `server.py` (the table of methods) and `requests/calls.py` (the way of a `tools/call`). `client.py`
is what the bridge knows of one client, `conversation.py` its messages on one channel. `http/` and `stdio.py` are the
fronts, `elicitation/` asks clients, `notifications/` and `progress.py` send them news, `revisions/` speaks their
revision, `tasks/` has the tasks that they follow themselves. What is listed is decided in `catalog/`, what happens to
a call in `pipeline/`.
"""
