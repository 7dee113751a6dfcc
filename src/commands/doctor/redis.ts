/**
 * What the limiter and the quota need of Redis (contract part 2): noeviction and AOF are required.
 */
import { inspectRedis, type RedisReport } from '../../limit/redis-inspect.ts';
import { REDIS_REPLY_MS_MAX } from '../../limits.ts';
import { withoutPassword } from '../../management/connections.ts';
import { reasonOf } from '../../management/failure.ts';
import { type Check, checkClock, fail, ok, warn } from './check.ts';

/** What the documents ask for and the tests run on. */
const MAJOR_MIN = 7;
const ROUND_TRIP_WARN_MS = 10;
const MEMORY_WARN_SHARE = 0.8;

export async function checkRedis(urls: readonly string[]): Promise<Check[]> {
  const all = await Promise.all(urls.map((url) => checkServer(url, urls.length > 1)));
  return all.flat();
}

async function checkServer(url: string, clustered: boolean): Promise<Check[]> {
  const what = `Redis ${withoutPassword(url)}`;
  let report: RedisReport;
  try {
    report = await inspectRedis(url);
  } catch (error) {
    return [fail(what, `not reachable: ${reasonOf(error)}`, 'Start it, or set SLUICE_REDIS_URL.')];
  }
  return [
    checkVersion(what, report),
    checkMode(what, report, clustered),
    checkRole(what, report),
    checkEviction(what, report),
    checkMemory(what, report),
    checkAppendOnly(what, report),
    checkRoundTrip(what, report),
    checkClock(`${what} clock`, report.clockMs, report.askedAtMs),
  ];
}

const field = ({ info }: RedisReport, name: string): string => info.get(name) ?? 'unknown';

function checkVersion(what: string, report: RedisReport): Check {
  const version = field(report, 'redis_version');
  return Number.parseInt(version, 10) >= MAJOR_MIN
    ? ok(what, `reachable, version ${version}`)
    : fail(what, `version ${version}`, `Version ${MAJOR_MIN} or newer is needed.`);
}

function checkMode(what: string, report: RedisReport, clustered: boolean): Check {
  const isCluster = field(report, 'cluster_enabled') === '1';
  if (isCluster === clustered) return ok(`${what} mode`, isCluster ? 'a cluster' : 'a single server');
  return isCluster
    ? fail(`${what} mode`, 'a cluster', 'Give several of its nodes in SLUICE_REDIS_URL, comma-separated.')
    : fail(`${what} mode`, 'a single server', 'Give one URL in SLUICE_REDIS_URL; several mean a cluster.');
}

function checkRole(what: string, report: RedisReport): Check {
  const role = field(report, 'role');
  if (role === 'master' || field(report, 'cluster_enabled') === '1') return ok(`${what} role`, role);
  return fail(
    `${what} role`,
    `${role}, which cannot be written to`,
    'Point SLUICE_REDIS_URL at the primary.',
  );
}

function checkEviction(what: string, report: RedisReport): Check {
  const policy = field(report, 'maxmemory_policy');
  if (policy === 'noeviction') return ok(`${what} maxmemory-policy`, policy);
  const harm = 'counters may be evicted, and limits then admit anew';
  const mend =
    'redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; a managed service has it as a parameter.';
  return fail(`${what} maxmemory-policy`, `${policy}: ${harm}`, mend);
}

function checkMemory(what: string, report: RedisReport): Check {
  const max = Number(field(report, 'maxmemory'));
  const used = Number(field(report, 'used_memory'));
  const name = `${what} memory`;
  if (!(max > 0)) return ok(name, `${mebibytes(used)} used, no maxmemory set`);
  const found = `${mebibytes(used)} of ${mebibytes(max)} used`;
  return used < max * MEMORY_WARN_SHARE
    ? ok(name, found)
    : warn(name, found, 'Raise maxmemory: when it is full, every request is refused.');
}

const mebibytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`;

function checkAppendOnly(what: string, report: RedisReport): Check {
  const name = `${what} AOF`;
  if (field(report, 'aof_enabled') !== '1')
    return fail(
      name,
      'off: a restart forgets counters',
      'redis-cli CONFIG SET appendonly yes, and the same in redis.conf.',
    );
  const wrote = field(report, 'aof_last_write_status');
  return wrote === 'ok' || wrote === 'unknown'
    ? ok(name, 'on')
    : fail(name, `on, but its last write failed (${wrote})`, "Look at Redis's log and its disk.");
}

function checkRoundTrip(what: string, { roundTripMs }: RedisReport): Check {
  const name = `${what} round trip`;
  const found = `${roundTripMs.toFixed(2)} ms`;
  const mend = `Bring Redis nearer: after ${REDIS_REPLY_MS_MAX} ms a call counts as failed and the request is refused.`;
  if (roundTripMs >= REDIS_REPLY_MS_MAX / 2) return fail(name, found, mend);
  return roundTripMs >= ROUND_TRIP_WARN_MS ? warn(name, found, mend) : ok(name, found);
}
