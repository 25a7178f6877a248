"""The fleet of a running bridge, as commands, the HTTP API, the console and `/metrics` see it.

Start with `desk.py`. What bridges ask one another is in `mcpbridge/fleet/orders.py`.
"""
