"""What each kind of client is listed: all tools or a few, in which form, by which profile.

Start with `exposure.py`. Facts about known clients are in `client_quirks.py`.
"""
