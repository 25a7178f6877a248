"""The HTTP front: Streamable HTTP of both eras, HTTP+SSE, WebSocket, and who may come in.

Start at `app.py`, which decides in what order rules apply. `sessions.py` serves the legacy era and
`stateless.py` the modern one; `reply.py` and `event_streams.py` make the responses. Limits that people set are in
`downstream/settings.py`. What a request means is left to `downstream/server.py`.
"""
