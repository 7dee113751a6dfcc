#!/bin/sh
# Installs the package, as `npm pack` makes it, in containers that have only Node, and uses it in an empty folder there.
#   npm run test:package                        on Debian 12 and 13, with each Node that runs sluice, and with one that does not
#   npm run test:package -- node:22-trixie-slim
# It needs Docker and the internet. TEST_DOCKER_FLAGS are further flags of `docker run`, such as --network=host.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] ||
  set -- node:20-bookworm-slim node:22-trixie-slim node:24-trixie-slim node:26-trixie-slim node:26-bookworm-slim

walk=$(
  cat <<'EOF'
set -eu
npm install --global --loglevel=error /package/sluice-*.tgz
echo "Node $(node --version), npm $(npm --version), sluice $(sluice --version)"

# A foreign server: it answers, and counts what it is sent. The load tester has neither Redis nor NATS, and leaves nothing behind.
node -e '
let sent = 0;
const server = require("node:http").createServer((req, res) => {
  if (req.method === "GET") return res.end(`${sent}`);
  req.resume().on("end", () => res.end(`{"id":"${++sent}"}`));
});
server.listen(9008, "127.0.0.1");' &
sleep 1
sluice load --dsn http://0123456789abcdef0123456789abcdef@127.0.0.1:9008/1 --rate 50 --duration 2s --quiet
sent=$(node -e 'fetch("http://127.0.0.1:9008").then((res) => res.text()).then(console.log)')
[ "$sent" -ge 100 ] && [ -z "$(ls -A)" ]
echo "sluice load sent $sent requests to a foreign server"

# The whole system. Where this Node does not fit, it is started by the command that doctor tells.
start='sluice dev'
told=$(sluice doctor | sed -n "s/.*Run it by another Node: \(npx .*\) ingest'.*/\1 dev'/p")
if [ -n "$told" ]; then
  said=$(sluice dev 2>&1) && exit 1
  [ "$(echo "$said" | wc -l)" -eq 1 ] && echo "$said"
  start=$told
fi
sh -c "exec $start" > /tmp/dev.log 2>&1 &
dev=$!
until grep -q 'sluice is ready' /tmp/dev.log; do
  kill -0 "$dev" || { cat /tmp/dev.log; exit 1; }
  sleep 1
done
sluice load --rate 50 --duration 2s --verify --quiet
echo "sluice dev stored $(find .sluice/sink -name '*.ndjson' -exec cat {} + | wc -l) items"
kill "$dev"
wait "$dev" || [ -n "$told" ] # npx has the exit code of a signal
EOF
)

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
npm pack --silent --pack-destination "$folder" > /dev/null
chmod 755 "$folder"
for image in "$@"; do
  echo "== $image"
  # shellcheck disable=SC2086 # flags are words
  docker run --rm --init ${TEST_DOCKER_FLAGS:-} --volume "$folder:/package:ro" --workdir /empty "$image" sh -c "$walk"
done
