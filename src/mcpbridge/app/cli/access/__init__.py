"""Who may get in, and where: signing in to servers, and tokens and addresses of the bridge's own HTTP front."""
