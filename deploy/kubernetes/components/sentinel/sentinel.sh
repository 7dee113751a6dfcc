# Starts a sentinel. It keeps what it learns in its file, which is on the volume of the pod.
file=/data/sentinel.conf
# Kept are the primary and what the sentinels agreed on; the rest is written anew, so that a new password holds.
known=$(sed -n 's/^sentinel monitor sluice \([^ ]*\) .*/\1/p' $file 2>/dev/null)
kept=$(grep -E '^sentinel (myid|config-epoch|leader-epoch|current-epoch|known-replica|known-sentinel) ' $file 2>/dev/null)
primary=${known:-redis-0.redis}
cat > $file.next <<CONFIG
port 0
tls-port 26379
tls-replication yes
tls-auth-clients no
tls-cert-file /etc/sluice/tls/tls.crt
tls-key-file /etc/sluice/tls/tls.key
tls-ca-cert-file /etc/sluice/tls/ca.crt
aclfile /etc/sluice/users/sentinel.acl
dir /data
protected-mode no
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $POD_NAME.redis
sentinel sentinel-pass "$REDISCLI_AUTH"
sentinel monitor sluice $primary 6379 2
sentinel auth-pass sluice "$REDISCLI_AUTH"
sentinel down-after-milliseconds sluice 5000
sentinel failover-timeout sluice 30000
$kept
CONFIG
mv $file.next $file
# A sentinel that cannot look up the primary's name ends.
until getent ahosts "$primary" >/dev/null; do sleep 1; done
exec redis-server $file --sentinel
