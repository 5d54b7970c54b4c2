"""The words that breaks are written in: shell functions, sent to a node with each script."""

from __future__ import annotations

PRELUDE = r"""
set -eu
export LC_ALL=C
kept=/root/kept; mkdir -p $kept
PKI=/etc/kubernetes/pki; MANIFESTS=/etc/kubernetes/manifests

# kc ...: kubectl as administrator, at this node's own API server or at $API
kc() {
  kubectl --kubeconfig=/etc/kubernetes/super-admin.conf \
    --server="https://${API:-$ADDRESS}:6443" "$@"
}

# keep FILE...: save a copy, once; back FILE...: put it back, in one move
place() { echo "$kept/$(echo "$1" | tr / _)"; }
keep() { for f; do [ -e "$(place "$f")" ] || cp -a "$f" "$(place "$f")"; done; }
back() {
  for f; do
    k=$(place "$f"); [ -e "$k" ] || continue
    cp -a "$k" "$(dirname "$f")/.back"; mv -f "$(dirname "$f")/.back" "$f"; rm -f "$k"
  done
}

# edit FILE SED...: change a file; a file that has nothing to change is an error
edit() {
  f=$1; shift; keep "$f"; new=$(dirname "$f")/.edited; cp -a "$f" "$new"
  for script; do
    sed "$script" "$new" >/root/edited
    if cmp -s /root/edited "$new"; then echo "nothing to change in $f: $script" >&2; exit 9; fi
    cat /root/edited >"$new"
  done
  mv -f "$new" "$f"
}

# soon SECONDS 'LINE': wait until a line of shell succeeds
soon() {
  end=$(($(date +%s) + $1)); shift
  until eval "$*" >/dev/null 2>&1; do
    if [ "$(date +%s)" -gt "$end" ]; then echo "not in time: $*" >&2; exit 8; fi
    sleep 0.3
  done
}

# issue CRT CA SUBJECT DAYS [NAMES]: another certificate for the key beside CRT
issue() {
  keep "$1"
  openssl req -new -key "${1%.crt}.key" -subj "$3" -out /root/csr 2>/dev/null
  echo extendedKeyUsage=serverAuth,clientAuth >/root/ext
  [ -z "${5:-}" ] || echo "subjectAltName=$5" >>/root/ext
  serial=0x$(openssl rand -hex 8)
  openssl x509 -req -in /root/csr -CA "$2.crt" -CAkey "$2.key" -set_serial "$serial" \
    -days "$4" -extfile /root/ext -out /root/new.crt 2>/dev/null
  cp -a "$1" "${1%/*}/.new"; cat /root/new.crt >"${1%/*}/.new"; mv -f "${1%/*}/.new" "$1"
}

# names CRT WITHOUT: the names in a certificate, but for one
names() {
  openssl x509 -in "$1" -noout -ext subjectAltName | tail -1 |
    sed 's/ //g; s/IPAddress:/IP:/g' | tr , '\n' | grep -vx "$2" | paste -sd,
}

# other NAME RELEASE: a copy of a running program that says it is another release
other() {
  old=$(echo "$2" | grep -oE '[0-9]+[.][0-9]+[.][0-9]+')
  last=${old##"${old%?}"}; set -- "$1" "$old" "${old%?}$(((last + 1) % 10))"
  says "$@"
}

# says NAME RELEASE OTHER: a copy of a running program that says it is that other release
says() {
  mkdir -p /root/other
  dots=$(echo "$2" | sed 's/[.]/\\./g')
  sed "s/$dots/$3/g" "/proc/$(pidof -s "$1")/exe" >"/root/other/$1"
  chmod 755 "/root/other/$1"
}

# later MINORS: $VERSION, so many minors later; as long as it, so that it fits in its place
later() { echo "$VERSION" | awk -F. -v n="$1" '{print $1 "." $2 + n "." $3}'; }

# remount NAME: sed lines that mount /root/other/NAME over a static pod's program
remount() {
  printf '%s\n' "s|^    volumeMounts:|&\n    - mountPath: /usr/local/bin/$1\n      name: other|" \
    "s|^  volumes:|&\n  - name: other\n    hostPath: {path: /root/other/$1, type: File}|"
}

# drop RULE...: nftables rules in a table of our own, `HOOK: RULE`, of IPv4 or $FAMILY (ip6),
# behind those of kube-proxy or at $PRIORITY; pass: remove them
drop() {
  table="${FAMILY:-ip} labtool_break"
  nft list table $table >/dev/null 2>&1 || nft add table $table
  for line; do
    hook=${line%%:*}
    kind="filter hook $hook priority ${PRIORITY:--5}"
    if [ "$hook" = postrouting ]; then kind="nat hook $hook priority 50"; fi
    nft "add chain $table $hook { type $kind; }"
    nft "add rule $table $hook ${line#*:}"
  done
}
pass() { for f in ip ip6; do nft delete table $f labtool_break 2>/dev/null || true; done; }

# condition NODE STATE: whether the API says so of a node's readiness
condition() {
  kc get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' | grep -qx "$2"
}

# fresh LEASE NOT: whether a lease is renewed, by another node than NOT
fresh() {
  what='jsonpath={.spec.holderIdentity} {.spec.renewTime}'
  kc -n kube-system get lease "$1" -o "$what" >/root/lease
  read -r holder renewed </root/lease || true
  [ "${holder%%_*}" != "$2" ] && [ $(($(date +%s) - $(date -d "$renewed" +%s))) -lt 6 ]
}
"""
