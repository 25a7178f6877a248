"""Finds texts in definitions that try to steer a model, by rules alone. Start at `scan.py`."""
