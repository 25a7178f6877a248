"""What Python tools keep over the calls of a run: `Context[T]`.

Start with `context.py`; `store.py` keeps the values between calls.
"""
