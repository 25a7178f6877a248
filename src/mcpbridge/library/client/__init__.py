"""Connect to a bridge from a program, and open one: clients, the thread of `SyncBridge`, options of opening.

Start at `client.py` for another process, at `in_process.py` for the same one. The bridge itself is `../bridge.py`.
"""
