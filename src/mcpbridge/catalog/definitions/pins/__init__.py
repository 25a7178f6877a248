"""Pins: what a model reads of a server, compared with what was approved. Pure, but for `files.py`.

Start with `review.py`, which decides about all that one server offers. `lock_file.py` is the format of `servers.lock`,
`canonical.py` the digest, `changes.py` what a change means, and `schema_inclusion.py` whether calls may continue. Who
holds back what was decided is `engine/wiring/pins.py`.
"""
