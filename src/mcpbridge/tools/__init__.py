"""Tools that are not behind an MCP server: Python, HTTP, OpenAPI, gRPC, commands, agents, and the bridge's own.

Start with `backend.py` (what every kind of tool promises) and `factory.py` (which kinds there are). Each kind has a
folder with its `settings.py` and its `backend.py`; `builtin/` has the tools of the bridge itself. The way of a call
(permissions, limits, retries, cache) is in `pipeline/`, names and lists are in `catalog/`.
"""
