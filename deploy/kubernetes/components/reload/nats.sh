# Has nats-server read its configuration again when a certificate or a user has changed. An unreadable configuration changes nothing: the
# server says so in its log and goes on with what it has.
sum() { cat /etc/sluice/auth/* /etc/sluice/tls/* | sha256sum; }
# The first turn asks in any case: a file may have changed since the server started.
before=
while sleep 10; do
  now=$(sum)
  [ "$now" != "$before" ] || continue
  nats-server --signal reload=/data/nats.pid && before=$now
done
