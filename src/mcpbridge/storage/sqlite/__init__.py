"""The store in one SQLite file, which all bridges of a user share.

Start at `store.py`. `schema.py` has the tables and the statements, `database.py` opens the file and owns the thread
that works on it; the call log uses it too.
"""
