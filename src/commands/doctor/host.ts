/**
 * What this machine gives: Node, kernel settings, file handles, room for large uploads. Nothing
 * here is asked of a server.
 */
import { accessSync, constants, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Config } from '../../config.ts';
import { HAS_ZSTD } from '../../envelope/decompress.ts';
import { REQUESTS_IN_FLIGHT_MAX, SPOOL_BYTES_MAX } from '../../limits.ts';
import { reasonOf } from '../../management/failure.ts';
import { bytesText } from '../../stream/setup/config-diff.ts';
import { type Check, fail, ok, warn } from './check.ts';

const BACKLOG_MIN = 1_024;
/** A worker keeps a socket and at most a spool file per request. */
const HANDLES_MIN = 2 * REQUESTS_IN_FLIGHT_MAX;
const HANDLES_FAIL = 4_096;

export function checkHost(config: Config): Check[] {
  return [
    checkNode(),
    checkWorkers(config),
    checkMigration(),
    checkBacklog(),
    checkHandles(),
    checkSpool(config),
    ...checkSink(config),
  ];
}

function readNumber(file: string): number | undefined {
  try {
    return Number(readFileSync(file, 'utf8').trim());
  } catch {
    return undefined;
  }
}

function checkNode(): Check {
  const { version } = process;
  const lacksZstd = `${version} has no zstd: bodies with Content-Encoding zstd are answered 400`;
  return HAS_ZSTD ? ok('Node', version) : warn('Node', lacksZstd, 'Run Node 22.15 or later, or the image.');
}

function checkWorkers({ workers }: Config): Check {
  const cpus = availableParallelism();
  const found = `${workers} on ${cpus} CPU${cpus === 1 ? '' : 's'}`;
  return workers <= cpus
    ? ok('workers', found)
    : warn('workers', found, 'Set SLUICE_WORKERS to the number of CPUs at most.');
}

function checkMigration(): Check {
  const what = 'kernel net.ipv4.tcp_migrate_req';
  const value = readNumber('/proc/sys/net/ipv4/tcp_migrate_req');
  if (value === undefined) return ok(what, 'not readable here, not checked');
  return value === 1
    ? ok(what, '1')
    : warn(
        what,
        `${value}: connections that wait for a worker are reset when it ends`,
        'sysctl -w net.ipv4.tcp_migrate_req=1 (kernel 5.14 or newer), and the same in /etc/sysctl.d.',
      );
}

function checkBacklog(): Check {
  const what = 'kernel net.core.somaxconn';
  const value = readNumber('/proc/sys/net/core/somaxconn');
  if (value === undefined) return ok(what, 'not readable here, not checked');
  return value >= BACKLOG_MIN
    ? ok(what, `${value}`)
    : warn(
        what,
        `${value}: bursts of new connections are dropped`,
        `sysctl -w net.core.somaxconn=${BACKLOG_MIN * 4}`,
      );
}

function checkHandles(): Check {
  const what = 'open files';
  const limit = openFilesLimit();
  if (limit === undefined) return ok(what, 'not readable here, not checked');
  const found = limit === Number.POSITIVE_INFINITY ? 'unlimited' : `${limit} per process`;
  const mend = `ulimit -n ${HANDLES_MIN}, LimitNOFILE= in a unit, or ulimits of the container.`;
  if (limit < HANDLES_FAIL) return fail(what, found, mend);
  return limit < HANDLES_MIN ? warn(what, found, mend) : ok(what, found);
}

function openFilesLimit(): number | undefined {
  try {
    const soft = /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    return undefined;
  }
}

/** Tries what a worker does: a new file in the folder. */
function checkSpool({ spoolDir, workers }: Config): Check {
  const what = `spool folder ${spoolDir}`;
  try {
    rmSync(mkdtempSync(join(spoolDir, 'sluice-doctor-')), { recursive: true });
    const { bavail, bsize } = statfsSync(spoolDir);
    const free = bavail * bsize;
    const found = `writable, ${bytesText(free)} free`;
    return free >= SPOOL_BYTES_MAX
      ? ok(what, found)
      : warn(
          what,
          found,
          `${workers} workers may use up to ${bytesText(SPOOL_BYTES_MAX)} each: set SLUICE_SPOOL_DIR to a larger disk.`,
        );
  } catch (error) {
    return fail(what, `not writable: ${reasonOf(error)}`, 'Make it writable, or set SLUICE_SPOOL_DIR.');
  }
}

function checkSink({ sink }: Config): Check[] {
  if (sink?.kind !== 'ndjson') return [];
  const what = `sink folder ${sink.dir}`;
  try {
    accessSync(sink.dir, constants.W_OK);
    return [ok(what, 'writable')];
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    return missing
      ? [ok(what, 'not there yet; the processor makes it')]
      : [
          fail(
            what,
            `not writable: ${reasonOf(error)}`,
            'Make it writable for the processor, or change SLUICE_SINK.',
          ),
        ];
  }
}
