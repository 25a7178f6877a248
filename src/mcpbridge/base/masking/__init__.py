"""Masking of secrets: what looks like one, by its shape, its name or the text around it.

Start at `text.py`. `../redaction.py` adds the values that the configuration brought in, and is what other folders use.
"""
