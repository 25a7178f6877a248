"""Arguments against a tool's schema: what is wrong, what is mended, how errors are worded. Start at `schema_check.py`.

When that happens is the business of `stages/validate_arguments.py`. Nothing here does I/O.
"""
