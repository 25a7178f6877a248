"""An HTTP request as a tool: `[tools.NAME] endpoint = "https://..."`.

Start with `settings.py`. `request.py` fills templates, `client.py` sends, `response.py` makes the result. OpenAPI and
A2A tools send with the same client.
"""
