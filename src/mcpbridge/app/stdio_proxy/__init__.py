"""`mcpbridge serve` on stdio: carries the lines of a client to the daemon and back, and starts the daemon if need be.

Only the standard library is imported, and little of it, since a client waits for it. Start at `relay.py`.
"""
