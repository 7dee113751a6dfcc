import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgres } from '../../../src/commands/doctor/postgres.ts';
import { createLog } from '../../../src/lib/log.ts';
import { type Finding, findingOf } from '../../../src/management/doctor/check.ts';
import { PostgresSink } from '../../../src/sink/postgres/postgres.ts';
import { SCHEMA_VERSION } from '../../../src/sink/postgres/schema.ts';
import { TestPostgres } from '../../support/postgres.ts';

let server: TestPostgres;
beforeAll(async () => {
  server = await TestPostgres.start();
});
afterAll(() => server?.close());

const checkPostgres = async (url: string): Promise<Finding[]> => (await postgres(url)).map(findingOf);
const urlOf = (role: string): string => server.url.replace('postgres@', `${role}:secret@`);
const failures = (checks: Finding[]): string[] =>
  checks.filter(({ state }) => state === 'fail').map(({ found }) => found);
const finding = (checks: Finding[], what: string): Finding | undefined =>
  checks.find((check) => check.what.endsWith(` ${what}`));
const makeTables = async (url: string): Promise<void> => {
  const sink = await PostgresSink.connect(url, { log: createLog('silent') });
  await sink.close();
};

describe('doctor, of the postgres sink', () => {
  it('finds a fresh database good, with migrations that the processor will apply, and then applied', async () => {
    const before = await checkPostgres(server.url);
    expect(failures(before)).toEqual([]);
    expect(before[0]).toMatchObject({ state: 'ok', found: expect.stringMatching(/^reachable, version \d+/) });
    expect(finding(before, 'migrations')).toMatchObject({
      state: 'warn',
      found: `${SCHEMA_VERSION} of ${SCHEMA_VERSION} pending`,
    });
    expect(finding(before, 'clock')).toMatchObject({ state: 'ok' });
    const [made] = await server.query(`SELECT to_regnamespace('sluice') IS NOT NULL AS made`);
    expect(made).toEqual({ made: false }); // it looked and changed nothing
    await makeTables(server.url);
    const after = await checkPostgres(server.url);
    const roundTrip = finding(after, 'round trip');
    expect(roundTrip?.state).toBe(Number.parseFloat(roundTrip?.found ?? '') < 20 ? 'ok' : 'warn');
    const others = after.filter((check) => check !== roundTrip);
    expect(others.map(({ state }) => state)).toEqual(others.map(() => 'ok'));
    expect(finding(after, 'migrations')?.found).toBe(`all ${SCHEMA_VERSION} applied`);
  });

  it('names the rights that a role lacks', async () => {
    await server.query(`CREATE ROLE stranger LOGIN PASSWORD 'secret'`);
    await makeTables(server.url);
    const strange = finding(await checkPostgres(urlOf('stranger')), 'rights');
    expect(strange).toMatchObject({ state: 'fail' });
    expect(strange?.found).toContain('USAGE on the schema sluice, CREATE on the schema sluice');
    expect(strange?.found).toContain('INSERT on sluice.seen_frames');
    expect(strange?.found).toContain('owner of sluice.items');
    await server.query('GRANT USAGE, CREATE ON SCHEMA sluice TO stranger');
    await server.query('GRANT ALL ON ALL TABLES IN SCHEMA sluice TO stranger');
    const owned = ['extras', 'heartbeats', 'items', 'logs', 'spans']
      .map((table) => `owner of sluice.${table}`)
      .join(', ');
    const known = await checkPostgres(urlOf('stranger'));
    expect(failures(known)).toEqual([`stranger lacks: ${owned}`]);
    expect(finding(known, 'migrations')).toMatchObject({ state: 'ok' });
    expect(JSON.stringify(await checkPostgres(urlOf('stranger')))).not.toContain('secret');
    await server.query(`CREATE DATABASE fresh; `);
    const fresh = await checkPostgres(urlOf('stranger').replace(/postgres$/, 'fresh'));
    expect(finding(fresh, 'rights')?.found).toBe('stranger lacks: CREATE on the database');
  });

  it('finds a role good that owns the schema and no more', async () => {
    await server.query(`CREATE ROLE keeper LOGIN PASSWORD 'secret'`);
    await server.query('CREATE DATABASE kept');
    const kept = urlOf('keeper').replace(/postgres$/, 'kept');
    await server.query('GRANT CREATE ON DATABASE kept TO keeper');
    await makeTables(kept);
    await server.query('REVOKE CREATE ON DATABASE kept FROM keeper');
    expect(failures(await checkPostgres(kept))).toEqual([]);
  });

  it('refuses a database of another encoding, one that cannot be written to, and a newer schema', async () => {
    await server.query(`CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0`);
    expect(failures(await checkPostgres(server.url.replace(/postgres$/, 'latin')))).toEqual(['LATIN1']);
    await server.query('CREATE DATABASE still');
    await server.query('ALTER DATABASE still SET default_transaction_read_only = on');
    expect(failures(await checkPostgres(server.url.replace(/postgres$/, 'still')))).toEqual([
      expect.stringMatching(/^read-only/),
    ]);
    await makeTables(server.url);
    await server.query('INSERT INTO sluice.migrations (version) VALUES (99)');
    const newer = await checkPostgres(server.url);
    await server.query('DELETE FROM sluice.migrations WHERE version = 99');
    expect(failures(newer)).toEqual([`99 applied, ${SCHEMA_VERSION} known here`]);
  });

  it('says that nobody is there', async () => {
    expect(await checkPostgres('postgres://me:secret@127.0.0.1:1/none')).toMatchObject([
      { state: 'fail', what: 'postgres postgres://…@127.0.0.1:1/none' },
    ]);
  });
});
