"""How a person is asked to agree to a call, and how long a yes holds. Start at `request.py`.

The words of the question are in `approvers.py`; how arguments are shown in it, in `request.py`.
When one has to agree is decided by `permissions/` and `stages/permission.py`; `stages/approval.py` asks.
"""
