"""Files that tools read and write for a model, beneath a root that they cannot leave.

Start at `paths.py`. `names.py` says which paths are refused as written, `rules.py` which files by their names,
`walk.py` follows links safely, and `write.py` writes.
"""
