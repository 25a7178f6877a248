"""What is counted and traced of calls: names, buckets and attributes. Start at `metrics.py`.

Calls are observed by `stages/observe.py`; the stages of traces are in `tracing.py`.
"""
