"""What a run of the agent loop does where the program says nothing. Loaded with `Bridge`, so it imports nothing."""

MAX_ROUNDS = 10
"""How often a run asks the model at most."""
