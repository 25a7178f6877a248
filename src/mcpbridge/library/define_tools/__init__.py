"""Tools of a program: functions, builders and handlers become tools that a bridge takes.

Start at `define.py`, then `decorator.py` (`@tool`), `builder.py` and `adapt.py`, the three ways to make a `Tool`
(`tool.py`). The backends that run them are in `tools/python/` and `tools/human_in_the_loop/`.
"""
