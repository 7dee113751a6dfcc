/** The stores that a stand may have in place of a folder of ndjson files: how a processor finds each, and what is stored there. */
import { TestPostgres } from '../support/postgres.ts';
import { TestClickHouse } from '../support/sinks/clickhouse.ts';
import { TestS3 } from '../support/sinks/seaweedfs.ts';
import type { Stored } from './ledger.ts';
import { readClickHouse, readPostgres, readS3, type SinkFiles } from './sink-reader.ts';

export type StoreName = 'postgres' | 'clickhouse' | 's3';

export type Store = {
  server: TestPostgres | TestClickHouse | TestS3;
  /** A value of SLUICE_SINK that leads through this port. */
  setting(port: number): string;
  /** By event id, as a reader finds it who follows docs/sinks.md. */
  stored(): Promise<Map<string, Stored>>;
  /** As its operator does it, where that differs from a kill for its clients. */
  stop(): Promise<void>;
  keepsTally: boolean;
};

async function startPostgres(): Promise<Store> {
  const server = await TestPostgres.start();
  return {
    server,
    setting: (port) => server.url.replace(`:${server.port}/`, `:${port}/`),
    stored: () => readPostgres(server.url),
    stop: () => server.stop(),
    keepsTally: true,
  };
}

async function startClickHouse(): Promise<Store> {
  const server = await TestClickHouse.start();
  return {
    server,
    setting: (port) => server.url({ port }),
    stored: () => readClickHouse(server.url()),
    stop: () => server.kill(),
    keepsTally: true,
  };
}

async function startS3(): Promise<Store> {
  const server = await TestS3.start();
  const known: SinkFiles = new Map();
  return {
    server,
    setting: (port) => server.url({ port }),
    stored: () => readS3(server, known),
    stop: () => server.kill(),
    keepsTally: false,
  };
}

export const STORES: Readonly<Record<StoreName, () => Promise<Store>>> = {
  postgres: startPostgres,
  clickhouse: startClickHouse,
  s3: startS3,
};
