"""The catalog: the tools, prompts and resources of all upstreams as one list.

Start with `snapshot.py`, the list at one moment, and `snapshot_builder.py`, which makes it. `refresh.py` decides when a
new one is made, `tool_names.py` what tools are called, `uris.py` how resources are addressed. `listing/` decides what
each kind of client is shown, `slim/` and `signatures/` how long a definition is, `search/` which tools fit a request.
It talks to no upstream and no client.
"""
