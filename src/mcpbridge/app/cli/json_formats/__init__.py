"""The documents that commands print with `--json`, as types: each field with what it is.

Start at `formats.py`, the table of them. docs/reference/json.md and its JSON Schema are written from here, and a test
runs the commands and compares. Commands import nothing of this folder, which would only cost time.
"""
