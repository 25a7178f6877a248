"""Calls made by a program: one, all of a model's turn, and those that wait for an answer.

Start at `call.py`; `calls.py` makes the calls of one turn side by side, `paused_calls.py` answers paused ones,
`run_events.py` has the events and outcome of a run. The way of a call itself is `pipeline/`.
"""
