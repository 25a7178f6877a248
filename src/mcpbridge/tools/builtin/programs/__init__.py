"""The tools `git-cli`, `gh-cli` and `gws-cli`: programs of which only listed sub-commands run.

`allow_list.py` judges a command line by a table. The tables and the refusals are in `gh.py`, `gws.py`,
`git/commands.py` and `git/refused.py`; `cli_tool.py` is their base, and `run.py` runs what was allowed.
"""
