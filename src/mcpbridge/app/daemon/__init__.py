"""The daemon: one bridge for all clients of a configuration, and what it needs of the process and the system.

Start at `daemon.py`. The other end of its socket is `stdio_proxy/`; the commands for it are in `cli/daemon/`.
"""
