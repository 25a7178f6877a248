"""The program `mcpbridge`: its commands, the daemon, the admin API, the doctor, and the files of clients.

Start at `cli/main.py`. Everything that a library could use as well lies in the folders above this one.
"""
