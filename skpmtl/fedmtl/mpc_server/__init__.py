"""A server of the secure aggregation: a folder of its own, which needs nothing else of skpmtl.

``job.py`` is what servers and clients agree on, and the files between them; ``computation.py`` what
is computed on shares; ``link.py`` how servers meet; ``server.py`` the run of one of them.
"""
