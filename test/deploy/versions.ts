/** The versions of servers that deploy/ names in its images. The tests run on the same: `npm run test:deployed` and `test:sinks` install them. */
export const DEPLOYED = {
  nats: '2.15.1',
  postgres: '18.4',
  clickhouse: '26.7.3',
  /** Of Debian 13, where `npm run test:node24` runs: nobody packs a later one without an image. */
  redis: '8.0',
} as const;
