"""Tools in few words: one line a tool, or a Python stub. Start with `signature.py`."""
