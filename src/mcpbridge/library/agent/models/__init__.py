"""The models that a run can ask: OpenAI, Anthropic, and the caller's own model by sampling.

Start at `model.py`, which has the protocol. `api_client.py` holds what the official clients have in common.
"""
