"""How messages travel to a server: stdio (a program or a container), streamable HTTP, HTTP+SSE, WebSocket.

Start reading in `factory`, which chooses the transport by the settings; `http_detect` finds out which one an HTTP
server speaks. What the messages mean is left to `protocol/peer` and the session.
"""
