"""Whole labs kept aside and brought back: `labtool save`, `load` and `saves`.

shelf.py    where saves lie, and what each one says of itself
take.py     makes one, of machines that stand still together
restore.py  puts one in the place of whatever there is
state.py    the lab's folder on the host, as a part of a save
parcel.py   one as a file, for another machine
"""
