"""The audit log: who called what and who agreed to it, in lines of which none can be changed unseen.

Start at `log.py`, which takes entries and hands them to a thread. `writer.py` appends them; `lines.py` is the form of a
line and its hash; `segments.py` the files; `checkpoints.py` what is signed and lies elsewhere; `verify.py` finds what
was tampered with; `reader.py` is for `mcpbridge audit show`; `exports.py` sends lines to other machines. What is
recorded is left to the pipeline and the engine.
"""
