"""Finds out what is wrong with servers, tools, configuration, clients and machine; says what to do, mends some of it.

Start at `examination.py`, which has the order of the checks. Each other file looks at one subject; `known_failures.py`
is the table of breakages that many people meet. `cli/config/doctor.py` shows the result.
"""
