"""The pages where people approve calls of others: `/approvals`. Start at `app.py`."""
