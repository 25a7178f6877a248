"""Rewrite input schemas for model APIs, and read strict arguments back. Pure.

Start at `strict.py` (the strict form) and `from_strict.py` (the way back). `strict_limits.py` has the documented limits
of each API, `plain.py` the form without strictness, `parts.py` follows references and merges `allOf`.
"""
