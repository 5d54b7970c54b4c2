"""Nodes that come to a lab and go from it, while it serves.

plan.py     a lab with a node more or less: names, addresses, what can't be
quorum.py   the arithmetic of etcd's voters
journal.py  what is on its way, so that the same command goes on
members.py  etcd's member list: learners added, promoted, members removed
objects.py  what the API knows of a node
machines.py one machine: the state of its member, its components ended in order
change.py   what one change works with, and the roles on all machines
add.py      nodes that come
remove.py   nodes that go, and replacement: both, one after the other

`Topology.nodes` in the state folder is the one list of a lab's nodes. It names those that
are wholly part of it: one that comes is entered last, one that goes is struck out first, and
what is between stands in the journal.
"""
