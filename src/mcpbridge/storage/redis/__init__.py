"""The store on a Redis or Valkey server, which bridges on several machines share.

Start at `store.py`. `connections.py` has the connections, the time that a command may take, and the breaker;
`scripts.py` has what runs on the server, and the layout of the keys.
"""
