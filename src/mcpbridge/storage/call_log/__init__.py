"""The call log: which tool was called, by whom and with what outcome, in a file that all bridges of a user share.

Start at `log.py`, which writes it. `format.py` has the tables and how a record becomes a row, `reader.py` reads the
file, `running.py` has the calls under way, `retention.py` what is removed. What is recorded is left to the pipeline.
"""
