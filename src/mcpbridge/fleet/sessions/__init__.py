"""Sessions that belong to the fleet.

`sessions.py` decides who answers; `written.py` and `streams.py` write down what the next bridge needs of a session;
`lapses.py` is for a bridge that does not know what it still has.
"""
