"""Run a model with tools until it is done: the agent loop.

Start at `run.py`; `calls.py` has the calls of a run and their records, `options.py` what a program can set,
`models/` the model APIs. How messages look in each API is in `llm_formats/`.
"""
