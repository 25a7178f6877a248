"""Bridges behind one balancer that act as one: who is a member, who has which session, and the link between members.

What is shared lies on the Redis or Valkey server of the store. What is alive (streams, questions, calls under way) has
one owner, and is reached from the others over the link. No message goes through the server.
"""
