"""One file for each stage of a call; their order is decided in `pipeline/plan.py`.

A stage imports no other stage. What all of them promise is in `pipeline/stage.py`.
"""
