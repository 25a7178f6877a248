"""One MCP server behind the bridge: reach it, keep it connected, call it.

Start reading in `pool` (all servers by name), then `supervisor` (one instance of one server) and `requests` (the way of
one call). `session` is one live MCP session, `connection` opens and reopens it, `instances` are the processes of one
server, `transports` carry the messages, `auth` signs in. What is done to a call before it comes here is decided in
`pipeline`; which tools clients see, in `catalog`.
"""
