"""One live MCP session: handshake, lists, notifications, and what the server asks.

Start reading in `session`. `negotiation` finds out the era, `declared` says what the session declares of its clients,
`elicitation` puts the server's questions to them, `keepalive` keeps it alive. It does not reconnect: `connection` does.
"""
