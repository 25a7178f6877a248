"""Writes a JSON value in fewer characters without losing anything, and reads it back.

Start at `encode.py`, which chooses the form and describes the table notation; `notation.py` has the grammar of cells
and heads, `decode.py` the way back. The parsers of CSV and Markdown tables are in `results/parsers.py`.
"""
