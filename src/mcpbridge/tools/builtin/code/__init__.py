"""Tools that run programs which a model writes: `code-execute` and `run_code`.

The isolation of these programs is in `sandbox/`.
"""
