/** What the clickhouse sink needs of its server (docs/sinks.md). */
import { type ClickHouseReport, inspectClickHouse } from '../../sink/clickhouse/inspect.ts';
import { VERSION_WANTED } from '../../sink/clickhouse/migrate.ts';
import { reasonOf, withoutPassword } from '../session.ts';
import { type Check, checkClock, fail, ok, warn } from './check.ts';

const ROUND_TRIP_WARN_MS = 50;
const FREE_SHARE_WARN = 0.1;
/** Half of what ClickHouse delays inserts from (parts_to_delay_insert). */
const PARTS_WARN = 500;

export async function checkClickHouse(url: string): Promise<Check[]> {
  const what = `clickhouse ${withoutPassword(url)}`;
  let report: ClickHouseReport;
  try {
    report = await inspectClickHouse(url);
  } catch (error) {
    return [fail(what, `not usable: ${reasonOf(error)}`, 'Start it, or correct SLUICE_SINK.')];
  }
  const { version, isTooOld, readOnly, roundTripMs } = report;
  const trip = `${roundTripMs.toFixed(2)} ms`;
  return [
    isTooOld
      ? fail(what, `version ${version}`, `Version ${VERSION_WANTED} or newer is needed.`)
      : ok(what, `reachable, version ${version}`),
    checkSchema(what, report),
    readOnly
      ? fail(`${what} writes`, 'the profile of the user is readonly', 'Give the user another profile.')
      : ok(`${what} writes`, 'taken'),
    checkDisk(what, report),
    checkParts(what, report),
    roundTripMs >= ROUND_TRIP_WARN_MS
      ? warn(`${what} round trip`, trip, 'Bring it nearer: a batch takes two to four round trips.')
      : ok(`${what} round trip`, trip),
    checkClock(`${what} clock`, report.clockMs, report.askedAtMs),
  ];
}

function checkSchema(what: string, { schemaVersion, schemaWanted }: ClickHouseReport): Check {
  const name = `${what} migrations`;
  if (schemaVersion === schemaWanted) return ok(name, `all ${schemaWanted} applied`);
  if (schemaVersion > schemaWanted)
    return fail(name, `${schemaVersion} applied, ${schemaWanted} known here`, 'Run the newer program.');
  const found = `${schemaWanted - schemaVersion} of ${schemaWanted} pending`;
  return warn(name, found, 'Nothing to do: the processor applies them when it starts.');
}

function checkDisk(what: string, { disk: { name, free, total } }: ClickHouseReport): Check {
  const share = free / Math.max(total, 1);
  const found = `${Math.floor(share * 100)} % free on disk ${name}`;
  const cure = 'Add space, or keep data for a shorter time: a full disk holds the streams.';
  return share < FREE_SHARE_WARN ? warn(`${what} disk`, found, cure) : ok(`${what} disk`, found);
}

function checkParts(what: string, { parts }: ClickHouseReport): Check {
  const found = `at most ${parts} in a partition`;
  const cure = 'Merges fall behind: give the server more CPU, or run fewer processors.';
  return parts >= PARTS_WARN ? warn(`${what} parts`, found, cure) : ok(`${what} parts`, found);
}
