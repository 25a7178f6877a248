"""The tool `git-cli`: its sub-commands, and what keeps a repository from running programs.

Start with `git.py`.
"""
