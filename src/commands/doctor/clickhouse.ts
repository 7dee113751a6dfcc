/** Checks of `sluice doctor` for the clickhouse sink (docs/sinks.md). */

import { withoutPassword } from '../../management/connections.ts';
import { asking, type Check } from '../../management/doctor/check.ts';
import { clock, milliseconds } from '../../management/doctor/checks.ts';
import { inspectClickHouse } from '../../sink/clickhouse/inspect.ts';
import { VERSION_WANTED } from '../../sink/clickhouse/migrate.ts';

const ROUND_TRIP_WARN_MS = 50;
const FREE_SHARE_WARN = 0.1;
/**
 * Number of parts in a partition from which doctor warns. At twice this number ClickHouse delays
 * inserts (parts_to_delay_insert).
 */
const PARTS_WARN = 500;

export function clickhouse(url: string): Promise<Check[]> {
  const what = `clickhouse ${withoutPassword(url)}`;
  return asking({ what, fix: 'Start it, or correct SLUICE_SINK.' }, async () => {
    const server = await inspectClickHouse(url);
    const { version, isTooOld, readOnly, roundTripMs, parts, schemaVersion, schemaWanted } = server;
    const { name, free, total } = server.disk;
    const freeShare = free / Math.max(total, 1);
    return [
      {
        what,
        found: `reachable, version ${version}`,
        fail: isTooOld && `version ${version}`,
        fix: `Version ${VERSION_WANTED} or newer is needed.`,
      },
      {
        what: `${what} migrations`,
        found: `all ${schemaWanted} applied`,
        fail: schemaVersion > schemaWanted && `${schemaVersion} applied, ${schemaWanted} known here`,
        warn: schemaVersion < schemaWanted && `${schemaWanted - schemaVersion} of ${schemaWanted} pending`,
        fix:
          schemaVersion > schemaWanted
            ? 'Run the newer program.'
            : 'Nothing to do: the processor applies them when it starts.',
      },
      {
        what: `${what} writes`,
        found: 'taken',
        fail: readOnly && 'the profile of the user is readonly',
        fix: 'Give the user another profile.',
      },
      {
        what: `${what} disk`,
        found: `${Math.floor(freeShare * 100)} % free on disk ${name}`,
        warn: freeShare < FREE_SHARE_WARN,
        fix: 'Add space, or keep data for a shorter time: a full disk holds the streams.',
      },
      {
        what: `${what} parts`,
        found: `at most ${parts} in a partition`,
        warn: parts >= PARTS_WARN,
        fix: 'Merges fall behind: give the server more CPU, or run fewer processors.',
      },
      {
        what: `${what} round trip`,
        found: milliseconds(roundTripMs),
        warn: roundTripMs >= ROUND_TRIP_WARN_MS,
        fix: 'Bring it nearer: a batch takes two to four round trips.',
      },
      clock(`${what} clock`, server.clockMs - server.askedAtMs),
    ];
  });
}
