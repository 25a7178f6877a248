"""Signs people in to the pages of the bridge as themselves. Start at `sessions.py`."""
