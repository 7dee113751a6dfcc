# sluice in one image: `ingest` (the default), `processor`, `setup` and every other command.
#   docker build -t sluice .
# Works with BuildKit and with the classic builder. The base must have glibc 2.38 or newer: uWebSockets.js for Node 24 asks for it.
ARG NODE_IMAGE=node:24-trixie-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
# Another source of uWebSockets.js than the lock file's, as the authors' own release: docs/supply-chain.md.
ARG UWS_PACKAGE
ARG UWS_INTEGRITY
RUN if [ -n "$UWS_PACKAGE" ]; then \
      npm install --ignore-scripts "uWebSockets.js@$UWS_PACKAGE" \
      && came=$(node -p "require('./package-lock.json').packages['node_modules/uWebSockets.js'].integrity") \
      && if [ "$came" != "$UWS_INTEGRITY" ]; then echo "UWS_PACKAGE is $came, not UWS_INTEGRITY=$UWS_INTEGRITY"; exit 1; fi; \
    fi
COPY tsconfig.json ./
COPY src ./src
COPY bench ./bench
RUN if [ -n "$UWS_PACKAGE" ]; then (cd node_modules/uWebSockets.js && sha256sum uws_*.node) > src/ingest/uws.sha256; fi \
  && npm run --silent build && npm prune --omit=dev --ignore-scripts
# uWebSockets.js carries a binary for every platform and Node version: 250 MB, of which this image runs one.
# Type declarations, source maps and documentation are read by nobody at run time.
RUN keep="uws_linux_$(node -p process.arch)_$(node -p process.versions.modules).node" \
  && test -f "node_modules/uWebSockets.js/$keep" \
  && find node_modules/uWebSockets.js -mindepth 1 -maxdepth 1 \
       ! -name "$keep" ! -name package.json ! -name LICENSE ! -name '*.mjs' ! -name uws.js -exec rm -r {} + \
  && find node_modules dist -type f \( -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' -o -name '*.map' -o -name '*.md' \) -delete \
  && node --input-type=module -e "import { nativeProblem } from './dist/ingest/native.js'; \
       const problem = nativeProblem('sluice'); if (problem) throw new Error(problem); await import('uWebSockets.js');"

FROM ${NODE_IMAGE}
# The admin port must be reachable from outside the container; whoever publishes it decides for whom.
# Both services answer on 8081 here, so that one health check serves both.
ENV NODE_ENV=production \
    SLUICE_ADMIN_HOST=0.0.0.0 \
    SLUICE_ADMIN_PORT=8081 \
    SLUICE_SPOOL_DIR=/var/spool/sluice
RUN install -d -o 1000 -g 1000 -m 0700 /var/spool/sluice /var/lib/sluice \
  && ln -s /app/dist/cli.js /usr/local/bin/sluice
COPY --from=build /app/package.json /app/package.json
COPY --from=build /app/node_modules /app/node_modules
COPY --from=build /app/dist /app/dist
WORKDIR /var/lib/sluice
# By number, so that Kubernetes can see that it is not root.
USER 1000:1000
# Large uploads wait here; it must be a disk, not memory. The rest of the file system may be read-only.
VOLUME /var/spool/sluice
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.SLUICE_ADMIN_PORT}/healthz`).then((res) => process.exit(res.ok ? 0 : 1), () => process.exit(1))"]
# node is PID 1: it has handlers for SIGTERM, and the primary reaps its workers itself.
# Flags of the processor's heap, which can only be set before node starts (PROCESSOR_FLAGS in src/ingest/worker-pool.ts).
ENTRYPOINT ["node", "--max-semi-space-size=16", "--initial-old-space-size=128", "--expose-gc", "/app/dist/cli.js"]
CMD ["ingest"]
