"""The lethal trifecta: a session that has read private data and untrusted content must not send freely."""
