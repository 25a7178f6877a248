"""Tools whose calls are paused until a person or the program answers.

Start with `human.py` and `manual.py`. How long a call waits is in `settings.py`; the paused calls themselves, and what
the model reads of them, are in `paused_calls.py`.
"""
