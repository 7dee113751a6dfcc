/** What the postgres sink needs of its database (docs/sinks.md). */

import { withoutPassword } from '../../management/connections.ts';
import { reasonOf } from '../../management/failure.ts';
import { inspectPostgres, type PostgresReport } from '../../sink/postgres/inspect.ts';
import { type Check, checkClock, fail, ok, warn } from './check.ts';

/** 12: the first whose ATTACH PARTITION waits for no reader. */
const VERSION_NUMBER_MIN = 120_000;
const ROUND_TRIP_WARN_MS = 20;

export async function checkPostgres(url: string): Promise<Check[]> {
  const what = `postgres ${withoutPassword(url)}`;
  let report: PostgresReport;
  try {
    report = await inspectPostgres(url);
  } catch (error) {
    return [fail(what, `not reachable: ${reasonOf(error)}`, 'Start it, or mend SLUICE_SINK.')];
  }
  return [
    checkVersion(what, report),
    checkEncoding(what, report),
    checkRole(what, report),
    checkSchema(what, report),
    checkRights(what, report),
    checkRoundTrip(what, report),
    checkClock(`${what} clock`, report.clockMs, report.askedAtMs),
  ];
}

function checkVersion(what: string, { version, versionNumber }: PostgresReport): Check {
  return versionNumber >= VERSION_NUMBER_MIN
    ? ok(what, `reachable, version ${version}`)
    : fail(what, `version ${version}`, 'Version 12 or newer is needed.');
}

function checkEncoding(what: string, { encoding }: PostgresReport): Check {
  const name = `${what} encoding`;
  if (encoding === 'UTF8') return ok(name, encoding);
  return fail(
    name,
    encoding,
    "Make a database for the sink: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
  );
}

function checkRole(what: string, { readOnly }: PostgresReport): Check {
  const name = `${what} writes`;
  return readOnly
    ? fail(
        name,
        'read-only: a standby, or transactions that are by default',
        'Point SLUICE_SINK at the primary.',
      )
    : ok(name, 'taken');
}

function checkSchema(what: string, { schemaVersion, schemaWanted }: PostgresReport): Check {
  const name = `${what} migrations`;
  if (schemaVersion === undefined) return warn(name, 'not readable', 'Mend the rights.');
  if (schemaVersion === schemaWanted) return ok(name, `all ${schemaWanted} applied`);
  if (schemaVersion > schemaWanted)
    return fail(name, `${schemaVersion} applied, ${schemaWanted} known here`, 'Run the newer program.');
  const found = `${schemaWanted - schemaVersion} of ${schemaWanted} pending`;
  return warn(name, found, 'Nothing to do: the processor applies them when it starts.');
}

function checkRights(what: string, { role, missingRights }: PostgresReport): Check {
  const name = `${what} rights`;
  if (missingRights.length === 0) return ok(name, `${role} may do all that the sink does`);
  const mend =
    'Let the role own the schema sluice and its tables; to make them it needs CREATE on the database.';
  return fail(name, `${role} lacks: ${missingRights.join(', ')}`, mend);
}

function checkRoundTrip(what: string, { roundTripMs }: PostgresReport): Check {
  const name = `${what} round trip`;
  const found = `${roundTripMs.toFixed(2)} ms`;
  const mend = 'Bring it nearer: a batch takes about eight round trips.';
  return roundTripMs >= ROUND_TRIP_WARN_MS ? warn(name, found, mend) : ok(name, found);
}
