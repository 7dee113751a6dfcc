/** The stores that a stand may have in place of a folder of ndjson files: how a processor finds each, and what is stored there. */
import { TestPostgres } from '../support/postgres.ts';
import { TestClickHouse } from '../support/sinks/clickhouse.ts';
import { TestS3 } from '../support/sinks/seaweedfs.ts';
import type { Stored } from './ledger.ts';
import { type ProjectIds, readClickHouse, readPostgres, readS3, type SinkFiles } from './sink-reader.ts';

export type StoreName = 'postgres' | 'clickhouse' | 's3';

export type Store = {
  server: TestPostgres | TestClickHouse | TestS3;
  /** A value of SLUICE_SINK that leads through this port. */
  setting(port: number): string;
  /** By event id, as a reader finds it who follows docs/sinks.md. */
  stored(projects: ProjectIds): Promise<Map<string, Stored>>;
  /** As its operator does it, where that differs from a kill for its clients. */
  stop(): Promise<void>;
  /** Starts the server if it has ended, as a supervisor does. */
  revive(): Promise<void>;
  /** Keeps others from the rows of items. @returns how to end it. Undefined where the store has no such lock */
  lock?(): Promise<() => Promise<void>>;
  keepsTally: boolean;
};

/** On a small disk the log of PostgreSQL leaves room for rows. */
const FEW_SEGMENTS = { max_wal_size: '64MB', min_wal_size: '32MB' };

async function startPostgres(on?: string): Promise<Store> {
  const server = await TestPostgres.start(on === undefined ? {} : { on, settings: FEW_SEGMENTS });
  return {
    server,
    setting: (port) => server.url.replace(`:${server.port}/`, `:${port}/`),
    stored: (projects) => readPostgres(server.url, projects),
    stop: () => server.stop(),
    // It ends when it cannot write its log.
    async revive() {
      if (await server.query('SELECT 1').then(Boolean, () => false)) return;
      await server.stop();
      await server.restart();
    },
    async lock() {
      const client = await server.client();
      await client.query('BEGIN; LOCK TABLE sluice.items');
      return () => client.end();
    },
    keepsTally: true,
  };
}

async function startClickHouse(on?: string): Promise<Store> {
  const server = await TestClickHouse.start(on === undefined ? {} : { on });
  return {
    server,
    setting: (port) => server.url({ port }),
    stored: (projects) => readClickHouse(server.url(), projects),
    stop: () => server.kill(),
    revive: async () => undefined,
    keepsTally: true,
  };
}

async function startS3(on?: string): Promise<Store> {
  const server = await TestS3.start(on);
  const known: SinkFiles = new Map();
  return {
    server,
    setting: (port) => server.url({ port }),
    stored: (projects) => readS3(server, known, projects),
    stop: () => server.kill(),
    revive: async () => undefined,
    keepsTally: false,
  };
}

/** `on`: a disk for the store's data. */
export const STORES: Readonly<Record<StoreName, (on?: string) => Promise<Store>>> = {
  postgres: startPostgres,
  clickhouse: startClickHouse,
  s3: startS3,
};
