"""Finds the servers in the files of clients, and translates each into the words of servers.toml. Changes nothing.

Start at `discover.py`.
"""
