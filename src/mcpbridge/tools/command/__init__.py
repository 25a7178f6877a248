"""A program as a tool: `[tools.NAME] command = [...]`.

Start with `settings.py`. How arguments become words of the command is in `arguments.py`; the sandbox is in `sandbox/`.
"""
