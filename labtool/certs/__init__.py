"""The certificates of a lab: what there is, and how it is renewed while the lab serves.

look.py     one look at a machine: files, handshakes, when processes began
rows.py     what was seen, as rows, with all that is wrong said in words
machines.py one machine: lay what the store has, restart what doesn't reload, see it served
renew.py    leaves, machine by machine; also with an end set on purpose
rotate.py   CAs, by the trust of both
"""
