"""Who may do what: the roles of people and programs, and what each role opens. Start at `roles.py`.

Nothing here waits or refuses. `permissions/policy.py` asks for each tool, `catalog/refresh.py` for what is listed.
"""
