/** A PostgreSQL for the tests of a file, empty before each, and sinks on it that are closed after each. */
import { afterAll, afterEach, beforeAll } from 'vitest';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { PostgresSink } from '../../../src/sink/postgres/postgres.ts';
import { log } from '../../processor/harness.ts';
import { TestPostgres } from '../../support/postgres.ts';

export let server: TestPostgres;
const sinks: PostgresSink[] = [];

export function usePostgres(): void {
  beforeAll(async () => {
    server = await TestPostgres.start();
  });
  afterEach(async () => {
    for (const sink of sinks.splice(0)) await sink.close();
    await server.query('DROP SCHEMA IF EXISTS sluice CASCADE');
  });
  afterAll(() => server.close());
}

export async function connectTo(url = server.url): Promise<PostgresSink> {
  const sink = await PostgresSink.connect(url, { log, clock });
  sinks.push(sink);
  return sink;
}
