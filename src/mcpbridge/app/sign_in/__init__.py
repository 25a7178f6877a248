"""The bridge as an authorization server: people sign in at their provider, and clients get tokens of the bridge."""
