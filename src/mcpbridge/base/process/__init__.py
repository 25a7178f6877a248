"""Child processes and the pipes to them.

Start at `process.py`: it starts a server and ends it with all its descendants. `pipes.py` reads and writes,
`memory_limit.py` measures. The `*_main.py` files are programs of their own. Processes that are not trusted belong to
`sandbox/`.
"""
