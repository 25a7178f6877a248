"""Notifications to clients outside their calls: changed lists, changed resources, task status, log messages.

Start at `listeners.py`, which decides who gets what. `subscriptions.py` has the requests that subscribe. Progress and
logs of a running call are `downstream/progress.py`.
"""
