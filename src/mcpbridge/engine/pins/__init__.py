"""Pinned definitions while a bridge runs: what servers show is compared with what people agreed to.

Start with `enforcement.py`. `first_sight.py` keeps what was seen of a server first, `lock_watch.py` follows
`servers.lock`, `current_pins.py` has the answer for `mcpbridge lock`. What a change means, and what is listed in its
place, is decided in `catalog/pins/`.
"""
