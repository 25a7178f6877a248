"""The tools `file-read`, `file-write`, `file-list` and `file-search`.

Start with `access.py`: which paths they reach. Limits are in `settings.py`, the file system itself is in
`sandbox/files/`.
"""
