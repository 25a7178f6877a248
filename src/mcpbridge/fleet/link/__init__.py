"""The way between bridges: frames of many requests on one connection, with TLS by a key of the fleet."""
