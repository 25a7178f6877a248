"""Lets a program in a sandbox reach the hosts on its list, and nothing else.

The program has a network of its own, in which there is only the loopback interface. The bridge listens in there and
makes the connections itself. Start at `proxy.py`; `rules.py` decides what is on the list.
"""
