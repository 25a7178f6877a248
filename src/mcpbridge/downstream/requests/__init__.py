"""Handlers of the requests of clients: one file for each kind of request.

Start at `calls.py` and `delivery.py` (the way of a call), `lists.py` and `initialize.py`. `downstream/server.py` says
which method goes to which handler; what happens to a call on its way is decided in `pipeline/`.
"""
