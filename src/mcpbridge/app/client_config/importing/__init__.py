"""Takes found servers over into servers.toml: each once, with a name of its own, its secrets apart.

Start at `plan.py`. Which of two servers counts is decided in `merge.py`.
"""
