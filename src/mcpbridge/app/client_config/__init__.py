"""The configuration files of clients (Cursor, Claude Desktop …): where they are, what they mean, how they are changed.

Start at `clients.py`, the table of clients. `entry.py` has the bridge's entry, `discover/` reads the servers that are
there, `importing/` takes them over into servers.toml, `install.py` writes the bridge's entry.
"""
