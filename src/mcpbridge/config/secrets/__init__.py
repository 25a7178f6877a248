"""Where `${cmd:…}`, `${keyring:…}` and `${secret:…}` get their values from.

Start with `providers.py`, which fetches each value once and keeps it. `commands.py` runs programs, `os_keyring.py` asks
the keyring of the system, and `storage/named_secrets.py` has what `mcpbridge secret set` stored. What the references
look like, and where they may be, is in `config/variables.py`.
"""
