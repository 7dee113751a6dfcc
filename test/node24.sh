#!/bin/sh
# Runs the tests, all or those that are named, under Node 24 on Debian 13: in a container of the base image that the Dockerfile uses.
#   npm run test:node24
#   npm run test:node24 -- test/ingest/http test/system/hostile.test.ts
# It needs Docker and the internet. The container begins with Node and these sources alone; the tests install the rest, as on any fresh machine.
# TEST_DOCKER_FLAGS are further flags of `docker run`, such as --network=host.
set -eu
cd "$(dirname "$0")/.."
image=$(sed -n 's/^ARG NODE_IMAGE=//p' Dockerfile)
# Chromium wants more shared memory than the 64 MB that Docker gives.
# shellcheck disable=SC2086 # flags are words
git ls-files -z --cached --others --exclude-standard | tar --null -T - -c |
  docker run --rm --interactive --init --shm-size=1g ${TEST_DOCKER_FLAGS:-} --workdir /sluice "$image" \
    sh -c 'tar -x && npm ci && exec npm test -- "$@"' sh "$@"
