"""The commands: what they are called, what they take, what they print, and with which exit code they end.

Start at `commands.py`, the table of them. What they do lies in the folders beside this one, and in `library/bridge.py`.
"""
