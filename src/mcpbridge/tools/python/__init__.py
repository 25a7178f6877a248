"""Python functions and objects as tools: `[tools.NAME] function = "pkg.mod:name"` or `executor_class`.

Start with `function.py`. `signature.py` makes schemas, `invoke.py` runs the code, `output.py` makes results.
`run_context/` has what tools keep over the calls of a run. Decorators and builders for programs are in `library/`.
"""
