"""The checks, one module for each part of a lab.

A check is a function under `@check(...)`. It takes by name what it acts with: `node`
(what was seen on the row's node), `lab` (all nodes), `api`, `cluster` (objects made for
it) and `where` (the row's label); it returns where its claim holds and raises
`CheckFailed` where it doesn't.
"""
