"""Our HTTP client for MCP servers.

Start at `client.py`. It opens connections (`connection.py`, `connect.py`, `tls_and_proxy.py`), signs requests
(`bearer_auth.py`) and reads answers (`responses.py`, `event_stream.py`). Why it is our own and not httpx2 alone is at
the head of `client.py`. How tokens are obtained is left to `upstream/auth/`.
"""
