"""Runs what is not trusted: programs, scripts over results, and access to files and addresses that a model chose.

Start at `runner.py` for programs (`isolation/` has the sandboxes and their self-test, `settings.py` the limits),
`files/paths.py` for files, `fetch/fetch.py` for addresses, `javascript/engine.py` for expressions over results and
`python/program.py` for programs that call tools.

Which tool may do what is decided by `pipeline/permissions`; the tools that run jobs are in `tools/`.
"""
