"""Sandboxes for programs: how one is built, what it may reach, and the test that it holds.

Start at `tier.py`: what a sandbox is. `bubblewrap.py` is the strong one and `launcher.py` the other; `seccomp.py` has
the refused system calls, `readable_files.py` what each program may read, `supervisor.py` watches a job until its end,
`self_test.py` proves that a sandbox holds, and `choose_tier.py` decides which one is used. `sandbox/runner.py` uses it.
"""
