"""Who may call what: rules, their precedence and their conditions. Start at `policy.py`.

Calls are refused by `stages/permission.py`; here nothing waits and nothing is sent.
"""
