"""The message and tool formats of model APIs: tools out, calls in, results out. Pure.

Start at `format.py`; each API has the module of its name. `tool_definitions.py` writes the tools, `schemas/` rewrites
input schemas, `messages.py` has what all formats share. No official package is imported; `agent/models/` asks models.
"""
