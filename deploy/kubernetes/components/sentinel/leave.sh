# Before Redis stops: a primary has another one take its place. The sentinels of the other pods are asked, since that of this pod stops, too.
# After twenty seconds they notice by themselves.
ask() {
  host=$1 port=$2
  shift 2
  timeout 3 redis-cli -h "$host" -p "$port" --tls --sni redis --cacert /etc/sluice/tls/ca.crt "$@" 2>/dev/null
}
# Replicas change over one after the other, and a primary without one would refuse writes: nobody needs one meanwhile.
need() (for at in 0 1 2; do ask redis-$at.redis 6379 config set min-replicas-to-write "$1"; done)
end=$(($(date +%s) + 20))
while [ "$(date +%s)" -lt $end ]; do
  ours= next=
  for at in 0 1 2; do
    [ "redis-$at" != "$POD_NAME" ] || continue
    primary=$(ask redis-$at.redis 26379 sentinel get-master-addr-by-name sluice | sed -n '1{/^[^ ]*$/p}')
    if [ "$primary" = "$POD_NAME.redis" ]; then
      ours=yes
      [ -n "$asked" ] || { trap 'need 1' EXIT; need 0; }
      # One sentinel alone is asked, again and again: two would begin two failovers.
      asked=${asked:-$at}
      [ "$asked" != $at ] || ask redis-$at.redis 26379 sentinel failover sluice
    else
      next=${primary:-$next}
    fi
  done
  # A replica leaves at once. A primary waits until both sentinels name the next one, which has a replica.
  [ -n "$ours$asked" ] || exit 0
  [ -n "$ours" ] || ! ask "$next" 6379 info replication | grep -q state=online || exit 0
  sleep 1
done
