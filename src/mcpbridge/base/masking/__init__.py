"""Masking of secrets: what looks like one, by its shape, its name or the text around it.

Start at `known_values.py`, which other folders use: it masks the values that the configuration brought in, and what
`text.py` finds by its looks.
"""
