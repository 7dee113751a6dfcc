/** Checks of `sluice doctor` for the postgres sink (docs/sinks.md). */

import { withoutPassword } from '../../management/connections.ts';
import { asking, type Check } from './check.ts';
import { clock, milliseconds } from './checks.ts';
import { askPostgres } from './questions.ts';

const ROUND_TRIP_WARN_MS = 20;
/** Oldest version that is allowed. Since PostgreSQL 12, ATTACH PARTITION waits for no reader. */
const VERSION_MIN = 120_000;

export function postgres(url: string): Promise<Check[]> {
  const what = `postgres ${withoutPassword(url)}`;
  return asking({ what, fix: 'Start it, or correct SLUICE_SINK.' }, async () => {
    const server = await askPostgres(url);
    const { version, encoding, role, missing, applied, known, roundTripMs } = server;
    const pending = applied === undefined ? undefined : known - applied;
    return [
      {
        what,
        found: `reachable, version ${version}`,
        fail: server.number < VERSION_MIN && `version ${version}`,
        fix: 'Version 12 or newer is needed.',
      },
      {
        what: `${what} encoding`,
        found: encoding,
        fail: encoding !== 'UTF8',
        fix: "Make a database for the sink: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
      },
      {
        what: `${what} writes`,
        found: 'taken',
        fail: server.readOnly && 'read-only: a standby, or transactions that are by default',
        fix: 'Point SLUICE_SINK at the primary.',
      },
      {
        what: `${what} migrations`,
        found: `all ${known} applied`,
        fail: Number(pending) < 0 && `${applied} applied, ${known} known here`,
        warn: pending === undefined ? 'not readable' : pending > 0 && `${pending} of ${known} pending`,
        fix:
          pending === undefined
            ? 'Correct the rights.'
            : pending < 0
              ? 'Run the newer program.'
              : 'Nothing to do: the processor applies them when it starts.',
      },
      {
        what: `${what} rights`,
        found: `${role} may do all that the sink does`,
        fail: missing.length > 0 && `${role} lacks: ${missing.join(', ')}`,
        fix: 'Let the role own the schema sluice and its tables; it makes them with CREATE on the database.',
      },
      {
        what: `${what} round trip`,
        found: milliseconds(roundTripMs),
        warn: roundTripMs >= ROUND_TRIP_WARN_MS,
        fix: 'Bring it nearer: a batch takes about eight round trips.',
      },
      clock(`${what} clock`, server.aheadMs),
    ];
  });
}
