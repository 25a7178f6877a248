"""The connection to one instance: dial, restart backoff, circuit breaker, stop when idle.

Start reading in `connection` (the states), then `connect` (one attempt from begin to end). The numbers of waiting are
in `backoff`, `circuit_breaker` and `idle_stop`. Who owns the connection is left to `supervisor`.
"""
