"""From bytes to messages: what has arrived from a peer, valid or not.

Start at `framing.py` (lines, and messages that came whole). `client_messages.py` decides which messages of clients are
valid and what is answered to the others; `repair.py` repairs what servers send. `escaped_names.py` spells names
plainly, so that later searches cannot miss them. What a message means is left to `protocol/peer.py` and `downstream/`.
"""
