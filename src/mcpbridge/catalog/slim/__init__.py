"""Shorter definitions of tools, by levels. Start with `slim.py`, which says what each level cuts."""
