"""The way of a tool call: which stages it passes, in which order, and what each of them does.

Start at `plan.py`, which decides the order. `stages/` has one file for each concern, and no stage imports another;
`deliver.py` is the end of every plan. The folders beside them hold what stages decide by: `approvals/`, `permissions/`,
`hooks/`, `validation/` of arguments, `observability/`. Connections to servers are `upstream/`, results `results/`.
"""
