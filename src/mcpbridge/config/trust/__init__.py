"""Whether a configuration that nobody named may be used: what counts of it, and what a person has said yes to.

Start with `decisions.py`, which keeps the decisions. `content.py` says what a decision covers, `description.py` what a
person is shown, `own_code.py` which files a configuration names.
"""
