# Gives Redis its certificate and users again when a file has changed. ACL LOAD would cut connections; each user is set as a whole by one
# command, so that a password that is gone from the file is gone. The user default stays: probes, and this script, have its password from the
# start of the pod.
tls=/etc/sluice/tls
sum() { cat /etc/sluice/users/* $tls/* | sha256sum; }
# Its own server, whose certificate may be of another authority than the new file.
ask() { redis-cli -p 6379 --tls --insecure; }
# The first turn gives them again in any case: they may have changed since Redis started.
before=
while sleep 10; do
  now=$(sum)
  [ "$now" != "$before" ] || continue
  answers=$({
    echo "config set tls-cert-file $tls/tls.crt tls-key-file $tls/tls.key tls-ca-cert-file $tls/ca.crt"
    sed -nE '/^user default /d; s/^user ([^ ]+) /acl setuser \1 reset /p' /etc/sluice/users/users.acl
  } | ask)
  # An answer for each line, and nothing else.
  if [ -n "$answers" ] && [ -z "$(echo "$answers" | grep -v '^OK$')" ]; then before=$now; else echo "$answers" >&2; fi
done
