#!/bin/sh
# `npm run bench`: builds what is measured and the benches, then runs a command. Help needs no build.
set -e
case "$1" in -h | --help)
  sed -n 's/^    npm run/npm run/p; s/^    --/  --/p' bench/README.md
  exit ;;
esac
npm run --silent build
tsc -p bench
cp src/ingest/limit/*.lua .bench/src/ingest/limit/
cp bench/load/show/report-view.* .bench/bench/load/show/
rm -rf .bench/dist
cp -R dist package.json .bench/
exec node .bench/bench/main.js "$@"
