"""The message and tool formats of model APIs: tools out, calls in, results out. Pure.

Start at `format.py`; each API has the module of its name. `offer.py` writes the tools, `messages.py` has what all
formats share, `schemas/` rewrites input schemas. No official package is imported; asking a model is `agent/models/`.
"""
