# Starts Redis as the primary, or as a replica of it. The sentinels of the other pods know which; while none answers (all three start
# together), the file of this pod's own does; before there is such a file, redis-0 is the primary.
ask() { timeout 3 redis-cli -h "$1" -p 26379 --tls --sni redis --cacert /etc/sluice/tls/ca.crt sentinel get-master-addr-by-name sluice; }
for at in 0 1 2; do
  [ "redis-$at" != "$POD_NAME" ] || continue
  # The name is a line without a blank, and an error is not.
  primary=${primary:-$(ask redis-$at.redis 2>/dev/null | sed -n '1{/^[^ ]*$/p}')}
done
primary=${primary:-$(sed -n 's/^sentinel monitor sluice \([^ ]*\) .*/\1/p' /data/sentinel.conf 2>/dev/null)}
primary=${primary:-redis-0.redis}
role=
[ "$primary" = "$POD_NAME.redis" ] || role="replicaof $primary 6379"
# A primary that no replica has heard of for two seconds takes no writes: another one may have been chosen.
exec redis-server /etc/sluice/redis.conf - <<CONFIG
replica-announce-ip $POD_NAME.redis
tls-replication yes
# Nobody waits for a second replica.
repl-diskless-sync-delay 0
masterauth "$REDISCLI_AUTH"
min-replicas-to-write 1
min-replicas-max-lag 2
$role
CONFIG
