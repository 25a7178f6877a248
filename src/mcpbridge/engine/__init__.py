"""From settings to a running bridge: build the parts, switch to new settings while calls run, report on the whole.

Start at `engine.py`, then `generation.py` (all that follows from one reading of the settings) and `wiring/` (how the
parts are built). `registry/` holds servers and tools that are added at run time, `cassettes/` records and replays
upstreams. What a part does is decided in its own folder; the Python API over the engine is `library/`.
"""
