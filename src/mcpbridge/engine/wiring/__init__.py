"""Build the parts of a bridge from the settings, and connect them.

One file for each kind of part; `../generation.py` calls them. Here is only how parts are put together: which stages a
call passes is decided in `pipeline/plan.py`, and what a part does in its own folder.
"""
