"""Previews of values: what a large JSON result, table or tree holds, in a limited number of characters.

Start at `preview.py`, which puts a preview together. The facts of a table are in `table.py` and
`column_statistics.py`, sample rows in `rows.py`, and how values are worded in `wording.py`. Texts without a value are
described by `results/text`.
"""
