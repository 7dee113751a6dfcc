/** The table of `sluice doctor`: what is checked, what was found, what is wrong, how to fix it. */
import { accessSync, constants, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import type { StreamInfo } from '@nats-io/jetstream';
import type { Config } from '../../config.ts';
import { HAS_ZSTD } from '../../ingest/envelope/inflate/inflate.ts';
import { nativeProblem, thisProgram } from '../../ingest/native.ts';
import { FRAME_BYTES_MAX, REDIS_REPLY_MS_MAX, REQUESTS_IN_FLIGHT_MAX } from '../../limits.ts';
import { readDropped } from '../../processor/dead-letters/dropped.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { CLUSTER_RISK_FIX, clusterRisk } from '../../stream/setup/cluster-risk.ts';
import { bytesText, changesBetween } from '../../stream/setup/config-diff.ts';
import { isLopsided, streamsOf } from '../../stream/setup/leaders.ts';
import type { WantedStream } from '../../stream/setup/setup-run.ts';
import { currentReplicas } from '../../stream/stream-watch.ts';
import { AUDIT_STREAM, CONSUMER, COUNTERS_BUCKET, DEAD_LETTERS_STREAM } from '../../stream/topology.ts';
import { withoutPassword } from '../connections.ts';
import { asking, type Check } from './check.ts';
import {
  askRedis,
  freeBytes,
  natsClockAheadMs,
  openFilesMax,
  type RedisServer,
  readNumber,
} from './questions.ts';

/** Number of open files that a worker needs: a socket and at most one spool file per request. */
const FILES_MIN = 2 * REQUESTS_IN_FLIGHT_MAX;
const FILES_FAIL = 4_096;
const BACKLOG_MIN = 1_024;
const CLOCK_WARN_MS = 1_000;
const CLOCK_FAIL_MS = 10_000;
const ROUND_TRIP_WARN_MS = 10;
/** Oldest versions that the documents allow and the tests run on. */
const REDIS_MAJOR_MIN = 7;
const NATS_2_MINOR_MIN = 9;
const PAYLOAD_BYTES_MIN = 1024 * 1024;
const FULL_SHARE = 0.8;

const UNREAD = 'not readable here, not checked';
const RUN_SETUP = 'Run sluice setup.';
/** Fixes for full streams, by stream name. All streams without a fix here are frame streams. */
const FULL_FIX: Readonly<Record<string, string>> = {
  [DEAD_LETTERS_STREAM]:
    'The oldest make room for new ones. See sluice dead-letters list; replay or purge them, ' +
    'or raise SLUICE_STREAM_MAX_BYTES and run sluice setup.',
  [AUDIT_STREAM]:
    'Changes of projects are not recorded once it is full. Raise SLUICE_STREAM_MAX_BYTES and run sluice setup.',
};
const MAKE_ANEW =
  'Frames that come now would not be handed out. Delete this consumer (nats consumer rm) and ' +
  'run sluice setup: what is in the stream is handed out anew. Of that the sink knows what it stored in ' +
  'the last ten minutes (ndjson) or day (postgres), and stores the rest again.';

const RESTORE =
  'Restore it (docs/operations.md, "A bucket that was deleted"), and restart no ingest before: workers that run keep ' +
  'their copy. On a new installation run sluice setup.';

export const milliseconds = (ms: number): string => `${ms.toFixed(2)} ms`;

/** Checks a clock. `aheadMs` is how far that clock is ahead of this machine's. */
export function clock(what: string, aheadMs: number): Check {
  const apartMs = Math.abs(aheadMs);
  return {
    what,
    found: `${(apartMs / 1000).toFixed(apartMs < 100 ? 3 : 1)} s apart from this machine`,
    fail: apartMs >= CLOCK_FAIL_MS,
    warn: apartMs >= CLOCK_WARN_MS,
    fix: 'Keep all clocks in step with NTP (chrony, systemd-timesyncd).',
  };
}

export function machine({ workers }: Config): Check[] {
  const { version } = process;
  const cpus = availableParallelism();
  const migrates = readNumber('/proc/sys/net/ipv4/tcp_migrate_req');
  const backlog = readNumber('/proc/sys/net/core/somaxconn');
  const files = openFilesMax();
  return [
    {
      what: 'Node',
      found: version,
      fail: nativeProblem(thisProgram('ingest')) ?? false,
      warn: !HAS_ZSTD && `${version} has no zstd: bodies with Content-Encoding zstd are answered 400`,
      fix: 'Run Node 22.15 or later, or the image.',
    },
    {
      what: 'workers',
      found: `${workers} on ${cpus} CPU${cpus === 1 ? '' : 's'}`,
      warn: workers > cpus,
      fix: 'Set SLUICE_WORKERS to the number of CPUs at most.',
    },
    {
      what: 'kernel net.ipv4.tcp_migrate_req',
      found: `${migrates ?? UNREAD}`,
      warn: migrates === 0 && '0: connections that wait for a worker are reset when it ends',
      fix: 'sysctl -w net.ipv4.tcp_migrate_req=1 (kernel 5.14 or newer), and the same in /etc/sysctl.d.',
    },
    {
      what: 'kernel net.core.somaxconn',
      found: `${backlog ?? UNREAD}`,
      warn: Number(backlog) < BACKLOG_MIN && `${backlog}: bursts of new connections are dropped`,
      fix: `sysctl -w net.core.somaxconn=${BACKLOG_MIN * 4}`,
    },
    {
      what: 'open files',
      found:
        files === undefined
          ? UNREAD
          : files === Number.POSITIVE_INFINITY
            ? 'unlimited'
            : `${files} per process`,
      fail: Number(files) < FILES_FAIL,
      warn: Number(files) < FILES_MIN,
      fix: `ulimit -n ${FILES_MIN}, LimitNOFILE= in a unit, or ulimits of the container.`,
    },
  ];
}

export function spool({ spoolDir, spoolMaxBytes }: Config): Promise<Check[]> {
  const what = `spool folder ${spoolDir}`;
  return asking({ what, fix: 'Make it writable, or set SLUICE_SPOOL_DIR.' }, () => {
    const free = freeBytes(spoolDir);
    return [
      {
        what,
        found: `writable, ${bytesText(free)} free`,
        warn: free < spoolMaxBytes,
        fix: `The workers may use up to ${bytesText(spoolMaxBytes)} together: set SLUICE_SPOOL_DIR to a larger disk, or SLUICE_SPOOL_MAX_BYTES.`,
      },
    ];
  });
}

export function ndjson(folder: string): Promise<Check[]> {
  const what = `sink folder ${folder}`;
  return asking({ what, fix: 'Make it writable for the processor, or change SLUICE_SINK.' }, () => {
    const isThere = statSync(folder, { throwIfNoEntry: false }) !== undefined;
    if (!isThere) return [{ what, found: 'not there yet; the processor makes it' }];
    accessSync(folder, constants.W_OK);
    return [{ what, found: 'writable' }];
  });
}

/** Checks a server of Redis. The limiter and the quota need noeviction and AOF. */
export function redis(access: RedisServer, { clustered }: { clustered: boolean }): Promise<Check[]> {
  const what = `Redis ${withoutPassword(access.urls[0])}`;
  return asking({ what, fix: 'Start it, or set SLUICE_REDIS_URL.' }, async () => {
    const { info, aheadMs, roundTripMs } = await askRedis(access);
    const version = info('redis_version');
    const isCluster = info('cluster_enabled') === '1';
    const role = info('role');
    const policy = info('maxmemory_policy');
    const [used, max] = [Number(info('used_memory')), Number(info('maxmemory'))];
    const keepsLog = info('aof_enabled') === '1';
    const wrote = info('aof_last_write_status');
    return [
      {
        what,
        found: `reachable, version ${version}`,
        fail: !(Number.parseInt(version, 10) >= REDIS_MAJOR_MIN) && `version ${version}`,
        fix: `Version ${REDIS_MAJOR_MIN} or newer is needed.`,
      },
      {
        what: `${what} mode`,
        found: isCluster ? 'a cluster' : 'a single server',
        fail: isCluster !== clustered,
        fix: isCluster
          ? 'Give several of its nodes in SLUICE_REDIS_URL, comma-separated.'
          : 'Give one URL in SLUICE_REDIS_URL; several mean a cluster.',
      },
      {
        what: `${what} role`,
        found: role,
        fail: role !== 'master' && !isCluster && `${role}, which cannot be written to`,
        fix: 'Point SLUICE_REDIS_URL at the primary.',
      },
      {
        what: `${what} maxmemory-policy`,
        found: policy,
        fail: policy !== 'noeviction' && `${policy}: counters may be evicted, and limits then admit anew`,
        fix:
          'redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; ' +
          'a managed service has it as a parameter.',
      },
      {
        what: `${what} memory`,
        found:
          max > 0
            ? `${bytesText(used)} of ${bytesText(max)} used`
            : `${bytesText(used)} used, no maxmemory set`,
        warn: max > 0 && used >= max * FULL_SHARE,
        fix: 'Raise maxmemory: when it is full, every request is refused.',
      },
      {
        what: `${what} AOF`,
        found: 'on',
        fail: keepsLog
          ? !['ok', 'unknown'].includes(wrote) && `on, but its last write failed (${wrote})`
          : 'off: a restart forgets counters',
        fix: keepsLog
          ? "Look at Redis's log and its disk."
          : 'redis-cli CONFIG SET appendonly yes, and the same in redis.conf.',
      },
      {
        what: `${what} round trip`,
        found: milliseconds(roundTripMs),
        fail: roundTripMs >= REDIS_REPLY_MS_MAX / 2,
        warn: roundTripMs >= ROUND_TRIP_WARN_MS,
        fix: `Bring Redis nearer: a request whose call takes ${REDIS_REPLY_MS_MAX} ms is refused.`,
      },
      clock(`${what} clock`, aheadMs),
    ];
  });
}

/** Checks NATS, without JetStream. */
export function nats(connect: () => Promise<NatsLink>): Promise<Check[]> {
  const what = 'NATS';
  return asking({ what, fix: 'Start it with JetStream (-js), or set SLUICE_NATS_URL.' }, async () => {
    const link = await connect();
    const { version = 'unknown', server_name: name = '', cluster } = link.connection.info ?? {};
    const [major = 0, minor = 0] = version.split('.').map(Number);
    const roundTripMs = await link.connection.rtt();
    return [
      {
        what,
        found: `reachable (${name.slice(0, 12)}), version ${version}`,
        fail: !(major > 2 || (major === 2 && minor >= NATS_2_MINOR_MIN)) && `version ${version}`,
        fix: `Version 2.${NATS_2_MINOR_MIN} or newer is needed.`,
      },
      {
        what: 'NATS cluster',
        found: cluster ?? 'a single server',
        warn: clusterRisk({ version, cluster }),
        fix: CLUSTER_RISK_FIX,
      },
      {
        what: 'NATS max_payload',
        found: bytesText(link.maxPayload),
        warn: link.maxPayload < PAYLOAD_BYTES_MIN,
        fix: 'Set max_payload to 1 MiB or more: smaller frames cost more.',
      },
      {
        what: 'NATS round trip',
        found: milliseconds(roundTripMs),
        warn: roundTripMs >= ROUND_TRIP_WARN_MS,
        fix: 'Bring NATS nearer: every answer waits for it.',
      },
    ];
  });
}

export function jetStream(link: NatsLink): Promise<Check[]> {
  const what = 'JetStream';
  return asking({ what, fix: 'Start nats-server with -js, or a jetstream block in its file.' }, async () => {
    const { storage, limits } = await (await link.manager()).getAccountInfo();
    const max = limits.max_storage;
    return [
      {
        what,
        found: `on, ${bytesText(storage)}${max > 0 ? ` of ${bytesText(max)}` : ''} stored`,
        warn: max > 0 && storage > max * FULL_SHARE,
        fix: 'Raise the storage limit of the account.',
      },
    ];
  });
}

export function natsClock(link: NatsLink): Promise<Check[]> {
  const what = 'NATS clock';
  return asking({ what, fix: RUN_SETUP, state: 'warn' }, async () => [
    clock(what, await natsClockAheadMs(link)),
  ]);
}

/**
 * Checks the replicas of a stream.
 * @returns nothing when all replicas are current
 */
function replicasOf(what: string, info: StreamInfo): Check[] {
  const [current, wanted] = [currentReplicas(info), info.config.num_replicas];
  if (current >= wanted) return [];
  const gone = (info.cluster?.replicas ?? []).filter(({ offline, current }) => offline || !current);
  const names = gone.map(({ name }) => name).join(', ') || 'no server is known for the others';
  return [
    {
      what: `${what} replicas`,
      found: `${current} of ${wanted} are current (${names})`,
      fail: true,
      fix:
        'Start the server that is away and restart no other one meanwhile. One that does not come back: ' +
        'docs/operations.md, "A server that does not come back".',
    },
  ];
}

/**
 * Checks that the leaders of the streams are spread over the servers of a cluster.
 * @returns nothing when no stream has replicas
 */
export function leaders(link: NatsLink, wanted: readonly WantedStream[]): Promise<Check[]> {
  const what = 'leaders of streams';
  return asking({ what, fix: RUN_SETUP, state: 'warn' }, async () => {
    const manager = await link.manager();
    const found = await Promise.allSettled(streamsOf(wanted).map((name) => manager.streams.info(name)));
    const names = found.flatMap((one) =>
      one.status === 'fulfilled' && one.value.config.num_replicas > 1
        ? (one.value.cluster?.leader ?? [])
        : [],
    );
    if (names.length === 0) return [];
    const counts = [...new Set(names)]
      .sort()
      .map((name) => `${name} ${names.filter((one) => one === name).length}`);
    return [
      {
        what,
        found: counts.join(', '),
        warn: isLopsided(names),
        fix: 'One server bears the load of all. The processor moves leaders after five minutes; sluice setup --balance at once.',
      },
    ];
  });
}

export function stream(link: NatsLink, { config }: WantedStream): Promise<Check[]> {
  const what = `stream ${config.name}`;
  return asking({ what, fix: RUN_SETUP }, async () => {
    const info = await (await link.manager()).streams.info(config.name);
    const { max_bytes: max, max_msg_size: size } = info.config;
    const { messages, bytes } = info.state;
    const changes = changesBetween(info.config, config);
    const differs = changes.length > 0 && `differs: ${changes.map(({ text }) => text).join(', ')}`;
    const found = `${messages} messages, ${bytesText(bytes)} of ${bytesText(max)}`;
    const fill: Check = {
      what: `${what} fill`,
      found,
      warn: true,
      fix:
        FULL_FIX[config.name] ??
        'Start more processors, or raise SLUICE_STREAM_MAX_BYTES and run sluice setup.',
    };
    return [
      {
        what,
        found,
        // A stream that bounds its messages below the size of the largest frame refuses such
        // frames. A setup that was killed may leave a stream in that state.
        fail: Number(size) > 0 && Number(size) < FRAME_BYTES_MAX && differs,
        warn: differs,
        fix: `${RUN_SETUP} Or correct the setting that differs.`,
      },
      ...(max > 0 && bytes > max * FULL_SHARE ? [fill] : []),
      ...replicasOf(what, info),
    ];
  });
}

export function consumer(link: NatsLink, { config, consumer: wanted }: WantedStream): Promise<Check[]> {
  const what = `consumer ${config.name}/${CONSUMER}`;
  return asking({ what, fix: RUN_SETUP }, async () => {
    const { consumers, streams } = await link.manager();
    const info = await consumers.info(config.name, CONSUMER);
    const { last_seq: last } = (await streams.info(config.name)).state;
    const ahead = info.delivered.stream_seq - last;
    const differing = changesBetween(info.config, wanted ?? {}).map(({ text }) => text);
    return [
      {
        what,
        found: `${info.num_pending} waiting, ${info.num_ack_pending} being processed`,
        fail: ahead > 0 && `${ahead} ahead of its stream: the broker lost the end of it`,
        warn: differing.length > 0 && `differs: ${differing.join(', ')}`,
        fix: ahead > 0 ? MAKE_ANEW : RUN_SETUP,
      },
    ];
  });
}

export function droppedLetters(link: NatsLink): Promise<Check[]> {
  const what = 'dropped dead letters';
  return asking({ what, fix: RUN_SETUP, state: 'warn' }, async () => {
    const dropped = await readDropped(link, Date.now());
    if (!dropped) return [{ what, found: 'none within a week' }];
    const { letters, at, project } = dropped;
    const whose = project === undefined ? '' : `, of project ${project}`;
    return [
      {
        what,
        found: `${letters}, the last at ${at}${whose}`,
        warn: true,
        fix: FULL_FIX[DEAD_LETTERS_STREAM],
      },
    ];
  });
}

export function bucket(link: NatsLink, name: string, replicas: number): Promise<Check[]> {
  const what = `bucket ${name}`;
  return asking({ what, fix: name === COUNTERS_BUCKET ? RUN_SETUP : RESTORE }, async () => {
    const info = await (await link.manager()).streams.info(`KV_${name}`);
    const { config, state } = info;
    const differing = config.num_replicas !== replicas;
    return [
      {
        what,
        found: `${state.messages} keys`,
        warn: differing && `${config.num_replicas} replicas, ${replicas} wanted`,
        fix: RUN_SETUP,
      },
      ...replicasOf(what, info),
    ];
  });
}
