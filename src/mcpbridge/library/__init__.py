"""The Python API: what programs import from `mcpbridge`.

Start at `bridge.py`; `tool_methods.py` and `agent_methods.py` have its methods, `sync_bridge.py` the same without
asyncio. `define_tools/` makes tools of Python functions, `calls/` calls them, `agent/` runs a model with them,
`llm_formats/` speaks the formats of model APIs, `client/` connects from elsewhere. What runs is `engine/`.
"""
