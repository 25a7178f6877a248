"""Previews of texts that have no value: logs, pages, listings, diffs, build output, Markdown and prose.

Start at `detect.py`, which finds the kind of a text; each kind has a file that finds its facts. `lines.py` has what
they share: which lines are read, and which facts fit. `results/preview/preview.py` calls them.
"""
