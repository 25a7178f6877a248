"""What people and programs use to look at a running bridge, and to change it: control socket, HTTP API, Prometheus.

Start at `control_commands.py` (for commands of this machine) or `http_api.py` (over HTTP). The bridge does the work.
"""
