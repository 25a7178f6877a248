"""What every other folder needs: errors, units, logging, directories, tasks and processes.

Start at `errors.py`: the whole tree of errors is at its head. `suggestions.py` finds the names near to a misspelled
one. Nothing here knows MCP, which is in `protocol/` and above.
"""
