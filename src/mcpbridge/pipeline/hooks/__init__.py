"""Functions, programs and addresses that see calls: what they get and what they may answer. Start at `call.py`.

When they run, how long they have and what a failure means is decided in `stages/hooks.py`.
"""
