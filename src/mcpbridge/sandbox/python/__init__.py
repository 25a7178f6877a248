"""Runs programs that models write in Python, which can only compute and call tools.

Start at `program.py`. `process.py` is the process of one program and `messages.py` what it exchanges with the bridge;
`worker_main.py`, `worker_steps.py` and `worker_values.py` run inside it, without mcpbridge.
"""
