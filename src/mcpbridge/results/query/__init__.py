"""Queries over kept results: read from a call's arguments, applied, and answered in so many characters.

Start at `query.py`. `request.py` reads a query, `where.py` its conditions, `page.py` lays out the rows of the answer.
The tool `recall` that asks them is in `tools/builtin/`.
"""
