"""Fetches addresses that somebody else chose, and refuses those that lead inside.

Start at `fetch.py`. Which addresses are refused is decided in `address_rules.py`; exceptions are in `settings.py`.
"""
