"""The tool `recall`: it reads, searches, lists and forgets kept results.

Start with `recall.py`. Queries are in `results/`, the kept results are in `storage/`.
"""
