"""Tasks that a client follows itself. Start at `tasks.py`; `session_tasks.py` has those of sessions of 2025-11-25.

For clients that know nothing of tasks the bridge follows them: `pipeline/task_polling.py`.
"""
