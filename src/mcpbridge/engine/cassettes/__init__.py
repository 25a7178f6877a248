"""Record upstream traffic once, and replay it in tests without any server.

Start at `cassette.py`. `format.py` decides how a file is written, `plain_form.py` and `masking.py` what is left out of
it, `match.py` which entry answers a request. Recording and replay are transports: nothing else in the bridge knows.
"""
