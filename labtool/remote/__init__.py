"""Machines that labtool did not make: found in an Ansible inventory, reached over SSH.

hosts.py         which there are, and how each is reached, from the user's inventory
connection.py    paramiko: commands and files
probe.py         runs on a machine with nothing but its Python; says what it is
facts.py         what the probe found, and what of it stands in a lab's way
"""
