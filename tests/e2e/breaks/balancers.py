"""Two load balancers: their units, their address, what they tell each other."""

from __future__ import annotations

from breaks.model import Batch, Break, Step

_CONFIG = "/etc/keepalived/keepalived.conf"
_HAS = "ip -4 address show dev eth0 | grep -q $VIRTUAL/32"
_DEAF = "drop 'input: ip protocol vrrp drop'"

BATCH = Batch(
    "pair",
    (
        Break(
            "they don't hear each other, and each takes the address",
            (
                Step("lb1", _DEAF, "pass", wait=f"soon 10 '{_HAS}'"),
                # lb1 has the higher priority, so that lb2 gives in.
                Step("lb2", _DEAF, "pass", f"soon 10 '{_HAS}'", f"soon 10 '! {_HAS}'"),
            ),
            {
                "LB-ADDRESS": "lb1 and lb2 of the balancers has .*, not exactly one",
                "LB-VRRP[lb1]": "lb1 sees advertisements other than from one balancer",
                "LB-VRRP[lb2]": "lb2 sees advertisements other than from one balancer",
            },
        ),
        Break(
            "a unit that a boot doesn't start",
            (Step("lb2", "systemctl disable -q keepalived", "systemctl enable -q keepalived"),),
            {"LB-KEEPALIVED[lb2]": "keepalived.service on lb2 is disabled, not enabled"},
        ),
        Break(
            "haproxy is tracked as root",
            (
                Step(
                    "lb1", f"edit {_CONFIG} 's/script_user .*/script_user root/'", f"back {_CONFIG}"
                ),
            ),
            {"LB-TRACK[lb1]": "keepalived on lb1 is not told 'script_user haproxy'"},
        ),
        Break(
            "a node doesn't get to the address",
            (Step("m2", 'drop "output: ip daddr $VIRTUAL reject"', "pass"),),
            {"LB-ENDPOINT[m2]": "the API at the virtual address, from m2 did not answer"},
        ),
    ),
    only=("LB",),
)
