"""JSON-RPC and MCP messages, and one peer's requests and answers.

Start at `jsonrpc.py` (the envelope) and `peer.py` (who waits for which answer). `body.py` holds params and results as
bytes, `meta.py` the `_meta` object, `revisions.py` what each revision of the protocol has. `reading/` turns
bytes into messages, `http/` is our HTTP client. What the methods mean is left to `upstream/` and `downstream/`.
"""
