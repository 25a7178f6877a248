"""The tools that the bridge answers itself.

Start with `builtin.py` (what each of them promises) and `factory.py` (which there are). A folder holds the tools of one
subject, with their settings.
"""
