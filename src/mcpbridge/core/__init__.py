"""The values that travel through the bridge with a call, and the settings that several folders read.

Start at `model.py` (the call and its tool), then `context.py` (whose call it is) and `elicitation.py` (what the
client can be asked meanwhile). `call_settings.py` and `result_settings.py` hold the defaults,
`settings_precedence.py` says which level wins. What is done to a call is left to `pipeline/`.
"""
