/** Compares JetStream with the streams, consumers and buckets that `sluice setup` would make. */
import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import { reasonOf } from '../../management/failure.ts';
import { openBucket } from '../../projects/bucket.ts';
import { readDropped } from '../../stream/dropped-record.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { bytesText, changesBetween } from '../../stream/setup/config-diff.ts';
import type { WantedStream } from '../../stream/setup/setup-run.ts';
import {
  BUCKETS,
  CONSUMER,
  COUNTERS_BUCKET,
  DEAD_LETTERS_STREAM,
  type TopologyOptions,
  wantedStreams,
} from '../../stream/topology.ts';
import { type Check, checkClock, fail, ok, warn } from './check.ts';

const VERSION_MIN = [2, 9] as const;
const PAYLOAD_BYTES_MIN = 1024 * 1024;
const FULL_WARN_SHARE = 0.8;
const ROUND_TRIP_WARN_MS = 10;
const MAKE_ANEW =
  'Frames that come now would not be handed out. Delete this consumer (nats consumer rm) and run sluice setup: what stands in the stream is handed out anew. Of that the sink knows what it stored in the last ten minutes (ndjson) or day (postgres), and stores the rest again.';
const RUN_SETUP = 'Run sluice setup.';
const LETTERS_FULL =
  'The oldest make room for new ones. See sluice dead-letters list; replay or purge them, or raise SLUICE_STREAM_MAX_BYTES and run sluice setup.';
/** No project has this id, so nobody counts under it. */
const CLOCK_KEY = 'doctor.clock';

export async function checkNats(link: NatsLink, options: TopologyOptions): Promise<Check[]> {
  const server = await checkServer(link);
  const manager = await link.manager();
  const jetStream = await checkJetStream(manager);
  if (jetStream.state === 'fail') return [...server, jetStream];
  const streams: Check[] = [];
  for (const wanted of wantedStreams(options)) streams.push(...(await checkStream(manager, wanted)));
  const buckets: Check[] = [];
  for (const bucket of BUCKETS) buckets.push(await checkBucket(manager, bucket, options.replicas));
  const clock = await clockOf(link, manager);
  return [...server, jetStream, clock, ...streams, await checkDropped(link), ...buckets];
}

async function checkServer(link: NatsLink): Promise<Check[]> {
  const { version = 'unknown', server_name: name = '' } = link.connection.info ?? {};
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [minMajor, minMinor] = VERSION_MIN;
  const recent = major > minMajor || (major === minMajor && minor >= minMinor);
  const payload = link.maxPayload;
  const roundTripMs = await link.connection.rtt();
  return [
    recent
      ? ok('NATS', `reachable (${name.slice(0, 12)}), version ${version}`)
      : fail('NATS', `version ${version}`, `Version ${VERSION_MIN.join('.')} or newer is needed.`),
    payload >= PAYLOAD_BYTES_MIN
      ? ok('NATS max_payload', bytesText(payload))
      : warn(
          'NATS max_payload',
          bytesText(payload),
          'Set max_payload to 1 MiB or more: smaller frames cost more.',
        ),
    roundTripMs < ROUND_TRIP_WARN_MS
      ? ok('NATS round trip', `${roundTripMs.toFixed(2)} ms`)
      : warn(
          'NATS round trip',
          `${roundTripMs.toFixed(2)} ms`,
          'Bring NATS nearer: every answer waits for it.',
        ),
  ];
}

async function checkJetStream(manager: JetStreamManager): Promise<Check> {
  try {
    const { storage, limits } = await manager.getAccountInfo();
    const limit = limits.max_storage > 0 ? ` of ${bytesText(limits.max_storage)}` : '';
    const found = `on, ${bytesText(storage)}${limit} stored`;
    return limits.max_storage > 0 && storage > limits.max_storage * FULL_WARN_SHARE
      ? warn('JetStream', found, 'Raise the storage limit of the account.')
      : ok('JetStream', found);
  } catch (error) {
    return fail(
      'JetStream',
      reasonOf(error),
      'Start nats-server with -js, or a jetstream block in its file.',
    );
  }
}

async function clockOf(link: NatsLink, manager: JetStreamManager): Promise<Check> {
  const what = 'NATS clock';
  try {
    const kv = await openBucket(link, COUNTERS_BUCKET);
    const sentAt = Date.now();
    await kv.put(CLOCK_KEY, '');
    const oursMs = (sentAt + Date.now()) / 2;
    const entry = await kv.get(CLOCK_KEY);
    await manager.streams.purge(`KV_${COUNTERS_BUCKET}`, { filter: `$KV.${COUNTERS_BUCKET}.${CLOCK_KEY}` });
    return checkClock(what, entry?.created.getTime() ?? 0, oursMs);
  } catch (error) {
    return warn(what, `not readable: ${reasonOf(error)}`, RUN_SETUP);
  }
}

async function checkStream(manager: JetStreamManager, { config, consumer }: WantedStream): Promise<Check[]> {
  const what = `stream ${config.name}`;
  let info: StreamInfo;
  try {
    info = await manager.streams.info(config.name);
  } catch (error) {
    return [fail(what, reasonOf(error), RUN_SETUP)];
  }
  const differing = changesBetween(info.config, config).map(({ text }) => text);
  const { messages, bytes } = info.state;
  const found = `${messages} messages, ${bytesText(bytes)} of ${bytesText(info.config.max_bytes)}`;
  const checks = [
    differing.length > 0
      ? warn(what, `differs: ${differing.join(', ')}`, `${RUN_SETUP} Or mend the setting that differs.`)
      : ok(what, found),
  ];
  if (info.config.max_bytes > 0 && bytes > info.config.max_bytes * FULL_WARN_SHARE)
    checks.push(
      warn(
        `${what} fill`,
        found,
        config.name === DEAD_LETTERS_STREAM
          ? LETTERS_FULL
          : 'Start more processors, or raise SLUICE_STREAM_MAX_BYTES and run sluice setup.',
      ),
    );
  if (consumer) checks.push(await checkConsumer(manager, config.name, consumer));
  return checks;
}

async function checkDropped(link: NatsLink): Promise<Check> {
  const what = 'dropped dead letters';
  try {
    const dropped = await readDropped(link, Date.now());
    if (!dropped) return ok(what, 'none within a week');
    const { letters, at, project } = dropped;
    const whose = project === undefined ? '' : `, of project ${project}`;
    return warn(what, `${letters}, the last at ${at}${whose}`, LETTERS_FULL);
  } catch (error) {
    return warn(what, `not readable: ${reasonOf(error)}`, RUN_SETUP);
  }
}

async function checkConsumer(
  manager: JetStreamManager,
  stream: string,
  wanted: NonNullable<WantedStream['consumer']>,
): Promise<Check> {
  const what = `consumer ${stream}/${CONSUMER}`;
  try {
    const info = await manager.consumers.info(stream, CONSUMER);
    const { last_seq: last } = (await manager.streams.info(stream)).state;
    const ahead = info.delivered.stream_seq - last;
    if (ahead > 0)
      return fail(what, `${ahead} ahead of its stream: the broker lost the end of it`, MAKE_ANEW);
    const differing = changesBetween(info.config, wanted).map(({ text }) => text);
    return differing.length > 0
      ? warn(what, `differs: ${differing.join(', ')}`, RUN_SETUP)
      : ok(what, `${info.num_pending} waiting, ${info.num_ack_pending} being processed`);
  } catch (error) {
    return fail(what, reasonOf(error), RUN_SETUP);
  }
}

async function checkBucket(manager: JetStreamManager, bucket: string, replicas: number): Promise<Check> {
  const what = `bucket ${bucket}`;
  try {
    const { config, state } = await manager.streams.info(`KV_${bucket}`);
    return config.num_replicas === replicas
      ? ok(what, `${state.messages} keys`)
      : warn(what, `${config.num_replicas} replicas, ${replicas} wanted`, RUN_SETUP);
  } catch (error) {
    return fail(what, reasonOf(error), RUN_SETUP);
  }
}
