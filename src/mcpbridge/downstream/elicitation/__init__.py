"""Ask the client of a call what a server wants to know: elicitation, sampling and roots.

Start at `ask.py` (legacy clients take requests), then `parked_calls.py` and `multi_round_trip.py` (modern clients are
asked in the answer to their call). `question_forms.py` has what they are asked, `request_state.py` what a modern client
brings back. `program.py` asks the program that the bridge runs in. Approvals of calls are `pipeline/approvals/`.
"""
