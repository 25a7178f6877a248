"""What outlives a call: stored values, tokens and the call log.

Start at `store.py`, the protocol. `open_store.py` chooses between the file (`sqlite/`) and memory
(`memory_store.py`); `settings.py` has the defaults and the paths. Tokens have files of their own (`token_store.py`),
and so has the call log (`call_log/`). What is kept, and for how long, is left to the callers.
"""
