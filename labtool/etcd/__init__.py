"""Everything about etcd: a lab's, or any.

target.py      which one is meant; client.py asks one endpoint, answers.py and metrics.py read it
look.py        one look at all members; quorum.py and overview.py say what it means
evidence.py    all that checks read; checks/ is the table of them, finding.py what they find
snapshot.py    saves one; trial.py restores it on loopback (bare.py, programs.py) and compares
restore.py     all members of a lab brought to a snapshot; plan.py is kept meanwhile, hands.py acts
recover.py     a quorum again, after it was lost
upkeep.py      defragmentation and alarms
drill.py       faults.py under a workload.py, then judged
local.py       members as bare processes on loopback; links.py between them
judge.py       whether one etcd can explain what clients saw (history, linearizability, revisions)
"""
