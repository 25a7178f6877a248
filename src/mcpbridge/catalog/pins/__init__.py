"""What people agreed that servers may show: pinned definitions (`servers.lock`), what a change of one means.

Start with `definition.py`: what is pinned and under which digest. `lock_file.py` reads and writes `servers.lock`,
`changes.py` says what is different, `schema_inclusion.py` whether calls continue. What is done about a change is
decided where servers' definitions arrive.
"""
