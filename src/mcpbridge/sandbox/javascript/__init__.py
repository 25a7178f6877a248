"""Evaluates JavaScript expressions over results (`_transform`) in a worker process.

Start at `engine.py`. `scripts.py` is what others depend on, without loading the engine; `worker_main.py` is the
program of the worker, with its limits.
"""
