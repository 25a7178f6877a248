"""The exit codes of the program. Which error ends with which: `cli/failures.py`.

The standard library's proxy reads them, so nothing is imported here.
"""

OK = 0
UNANSWERED = 1
"""`serve`: the bridge ended before it had answered a client that says nothing more."""
DIFFERS = 1
"""`lock --check`: a server shows something else than what was agreed to. `audit verify`: the log is not as written."""
USAGE = 2
"""Wrong arguments or a wrong configuration."""
UNREACHABLE = 4
"""No upstream, or not the one that was meant, could be reached."""
TOOL_ERROR = 5
"""The tool answered with an error, or there is no such tool, prompt or resource."""
DECIDED = 6
"""Somebody answered it before."""
TIMED_OUT = 7
"""No answer in time."""
BUSY = 75
"""Of a supervised daemon whose configuration another daemon serves: it is tried again later."""
INTERRUPTED = 130
"""SIGINT."""
