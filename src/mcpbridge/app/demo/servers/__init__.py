"""The demo's own MCP servers: small, real, of the standard library alone, each a program of its own (`*_main.py`).

`mcp_server.py` is what they share. They are separate from the bridge on purpose: nothing of it is imported here.
"""
