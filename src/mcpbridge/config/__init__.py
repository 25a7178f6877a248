"""The configuration file that people write: found, read, expanded, checked, edited.

Start with `load.py`. `schema.py` puts the sections together; each is declared in `settings.py` of the folder that reads
it. `files/` edits files of other programs and keeps backups of them.
"""
