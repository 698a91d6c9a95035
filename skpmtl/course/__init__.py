"""The hierarchical model, learnt in one loop of queries: all private fits but meta-learning.

Read `plan` (budget shares), then `curator` (the loop), `queries` (what leaves a task, by kind),
`tasks` (how tasks answer) and `billboard` (what is published, and how a task goes on with it).
"""
