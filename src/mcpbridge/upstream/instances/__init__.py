"""One server, several processes or sessions: the one that lists, and those for single clients or projects.

Start reading in `chooser`, which decides where a client's calls go. `primary` are the instances that list, `on_demand`
all others, `reconfigure` says which settings start a server anew. How one instance runs is left to `supervisor`.
"""
