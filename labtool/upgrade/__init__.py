"""From one release of Kubernetes to the next, machine by machine, while the lab serves.

plan.py     what is done in which order; what is refused
record.py   what is done already, in the state folder
cargo.py    programs and images of the new release: sent, imported, put in place
machine.py  one step on one machine, and the checks that prove it
static_pods.py  whether those of a machine are at rest after its kubelet began anew
run.py      all steps, and where it was cut off
"""
