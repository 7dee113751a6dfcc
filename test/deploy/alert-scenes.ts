/**
 * Two cells under one Prometheus, and for each alert a scene in which one of them has the cause: what promtool is given. The other cell
 * is always well, and busier, so that a rule that mixes cells shows the wrong figure or none.
 */

type Cell = { readonly cluster: string; readonly namespace: string };
export const WELL: Cell = { cluster: 'eu', namespace: 'sluice-large' };
export const ILL: Cell = { cluster: 'us', namespace: 'sluice' };

/** Series without their cell → their values, in promtool's notation for a scene of so many minutes. */
type Series = Readonly<Record<string, (minutes: number) => string>>;

/** Grows by so much a minute, from 0. */
const rate =
  (perMinute: number) =>
  (minutes: number): string =>
    `0+${perMinute}x${minutes}`;
const steady =
  (value: number) =>
  (minutes: number): string =>
    `${value}x${minutes}`;
/** As it is well, up to this minute; afterwards by `step` a minute. */
const bends =
  (at: number, before: number, after: number) =>
  (minutes: number): string =>
    `0+${before}x${at} ${before * at + after}+${after}x${minutes - at - 1}`;
/** Another value from this minute on. */
const jumps =
  (at: number, before: number | '_', after: number) =>
  (minutes: number): string =>
    `${before}x${at} ${after}x${minutes - at - 1}`;

const INGEST = ['10.0.0.1:8081', '10.0.0.2:8081'] as const;
const PROCESSORS = ['10.0.0.3:8081', '10.0.0.4:8081'] as const;
const labels = (job: string, instance: string, more: string): string =>
  `{job="${job}",instance="${instance}"${more && `,${more}`}}`;
const ingest = (metric: string, more = '', instance: string = INGEST[0]): string =>
  `${metric}${labels('sluice-ingest', instance, more)}`;
const processor = (metric: string, more = '', instance: string = PROCESSORS[0]): string =>
  `${metric}${labels('sluice-processor', instance, more)}`;

const NATS = ['10.0.0.5:7777', '10.0.0.6:7777', '10.0.0.7:7777'] as const;
/** A primary and two replicas. */
const REDIS = ['10.0.0.8:9121', '10.0.0.9:9121', '10.0.0.10:9121'] as const;
const nats = (metric: string, more = '', instance: string = NATS[0]): string =>
  `${metric}${labels('sluice-nats', instance, more)}`;
const redis = (metric: string, instance: string = REDIS[0]): string =>
  `${metric}${labels('sluice-redis', instance, '')}`;
const health = (value: string, instance: string = NATS[0]): string =>
  nats('gnatsd_healthz_js_server_only_status_value', `value="${value}"`, instance);
const MAXMEMORY = 2 * 1024 ** 3;

const DAY = 86_400;
const requests = (outcome: string): string =>
  ingest('sluice_requests_total', `endpoint="ingest",outcome="${outcome}"`);
const bucket = (metric: string, le: string): string =>
  ingest(`sluice_${metric}_duration_seconds_bucket`, `le="${le}"`);
const stream = (figure: string, name: string, instance: string = INGEST[0]): string =>
  ingest(`sluice_stream_${figure}`, `stream="${name}"`, instance);
const leader = (name: string, server: string): string =>
  ingest('sluice_stream_leader', `stream="${name}",server="${server}"`);
const certificate = (server: string): string =>
  ingest('sluice_certificate_expire_timestamp_seconds', `server="${server}"`);
const pending = (instance: string, of = 'SLUICE_EVENTS'): string =>
  processor('sluice_pending_messages', `stream="${of}"`, instance);
const processed = (result: string): string =>
  processor('sluice_processed_total', `type="event",result="${result}"`);

const sinkFailing = processor('sluice_sink_failing', 'sink="postgres://db/sluice"');

/** How full the streams of a healthy cell are. The dead letters drop their oldest messages. */
const FILL = { SLUICE_EVENTS: 0.1, SLUICE_CHUNKS: 0.05, SLUICE_DEAD_LETTERS: 0.95, SLUICE_AUDIT: 0.1 };
const STREAM_BYTES = 10_000;

/** All that the rules read. `size`: how busy the cell is. */
function healthy(size: number): Series {
  const quick = ['request', 'redis_call', 'publish'].flatMap((metric) =>
    ['0.05', '0.5', '+Inf'].map((le) => [bucket(metric, le), rate(600 * size)] as const),
  );
  const streams = INGEST.flatMap((instance) =>
    Object.entries(FILL).flatMap(
      ([name, fill]) =>
        [
          [stream('bytes', name, instance), steady(fill * STREAM_BYTES * size)],
          [stream('max_bytes', name, instance), steady(STREAM_BYTES * size)],
        ] as const,
    ),
  );
  return {
    ...Object.fromEntries([...quick, ...streams]),
    ...Object.fromEntries(INGEST.map((instance) => [ingest('up', '', instance), steady(1)])),
    ...Object.fromEntries(PROCESSORS.map((instance) => [processor('up', '', instance), steady(1)])),
    ...Object.fromEntries(
      INGEST.map((instance) => [ingest('sluice_jetstream_available', '', instance), steady(1)]),
    ),
    ...Object.fromEntries(
      PROCESSORS.map((one) => [processor('sluice_jetstream_available', '', one), steady(1)]),
    ),
    [ingest('sluice_jetstream_missing', 'name="KV_sluice_projects"')]: steady(0),
    [processor('sluice_consumer_missing', 'name="SLUICE_EVENTS/processor"')]: steady(0),
    [processor('sluice_jetstream_restored_total', 'name="SLUICE_EVENTS/processor"')]: steady(0),
    ...Object.fromEntries(
      Object.keys(FILL).flatMap((name) => [
        [stream('replicas', name), steady(3)] as const,
        [stream('replicas_current', name), steady(3)] as const,
      ]),
    ),
    ...Object.fromEntries(PROCESSORS.map((instance) => [pending(instance, 'SLUICE_LOGS'), steady(0)])),
    [requests('accepted')]: rate(600 * size),
    [requests('unauthenticated')]: rate(30 * size),
    [requests('forbidden_key')]: rate(0),
    [requests('failed')]: rate(0),
    [requests('overloaded')]: rate(0),
    [requests('limiter_unavailable')]: rate(0),
    [ingest('sluice_limiter_state_lost_total')]: steady(0),
    [ingest('sluice_counters_restored_total')]: steady(0),
    ...Object.fromEntries(
      Object.keys(FILL).map((name, at) => [leader(name, `nats-${at % 3}`), steady(1)] as const),
    ),
    [ingest('sluice_worker_restarts_total')]: steady(0),
    [ingest('sluice_workers')]: steady(2),
    [ingest('sluice_buffered_bytes')]: steady(20_000_000),
    [ingest('sluice_admin_tokens_refused_total')]: rate(1),
    [ingest('sluice_credentials_expire_timestamp_seconds')]: steady(90 * DAY),
    [processor('sluice_credentials_expire_timestamp_seconds')]: steady(90 * DAY),
    [certificate('nats:4222')]: steady(60 * DAY),
    [certificate('redis:6379')]: steady(60 * DAY),
    ...Object.fromEntries(PROCESSORS.map((instance) => [pending(instance), steady(400 * size)])),
    [processed('stored')]: rate(600 * size),
    [processor('sluice_processing_lag_seconds')]: steady(1),
    [processor('sluice_dead_letters_dropped_total')]: steady(0),
    [sinkFailing]: steady(0),
    ...Object.fromEntries(
      NATS.flatMap((instance) => [
        [nats('up', '', instance), steady(1)],
        [health('ok', instance), steady(1)],
        [nats('gnatsd_varz_slow_consumers', '', instance), steady(0)],
      ]),
    ),
    ...Object.fromEntries(
      REDIS.flatMap((instance, at) => [
        [redis('up', instance), steady(1)],
        [redis('redis_up', instance), steady(1)],
        [redis('redis_memory_used_bytes', instance), steady(0.5 * MAXMEMORY)],
        [redis('redis_memory_max_bytes', instance), steady(MAXMEMORY)],
        [redis('redis_aof_last_write_status', instance), steady(1)],
        [redis('redis_aof_last_bgrewrite_status', instance), steady(1)],
        [redis('redis_connected_slaves', instance), steady(at === 0 ? 2 : 0)],
      ]),
    ),
  };
}

export type Scene = {
  readonly alert: string;
  readonly minutes: number;
  /** What is other than well in the one cell. */
  readonly series: Series;
  /** All series of these targets end at this minute: they answer no more. */
  readonly silent?: { readonly targets: string; readonly at: number };
  readonly labels?: Readonly<Record<string, string>>;
  readonly summary: string;
};

/** So many of a minute's requests in one second's worth of a metric's slow bucket. */
const slow = (metric: string, fast: string, le: string): Series => ({
  [bucket(metric, '0.05')]: rate(0),
  [bucket(metric, fast)]: rate(10),
  [bucket(metric, le)]: rate(100),
  [bucket(metric, '+Inf')]: rate(100),
  ...(fast !== '0.5' && le !== '0.5' && { [bucket(metric, '0.5')]: rate(100) }),
});

const HISTORY = 360;
/** A fifth of all fails for the last five minutes of six hours. */
const burst = (outcome: string): Series => ({
  [requests('accepted')]: bends(HISTORY, 600, 480),
  [requests(outcome)]: bends(HISTORY, 0, 120),
});
/** One in a hundred fails all day. */
const smoulder = (outcome: string): Series => ({
  [requests('accepted')]: rate(594),
  [requests(outcome)]: rate(6),
});

const ofInstance = (instance: string, job: string) => ({ job, instance });

export const SCENES: readonly Scene[] = [
  {
    alert: 'SluiceIngestDown',
    minutes: 20,
    series: { [ingest('up')]: jumps(10, 1, 0) },
    silent: { targets: INGEST[0], at: 10 },
    labels: ofInstance(INGEST[0], 'sluice-ingest'),
    summary: `No answer from ingest ${INGEST[0]}`,
  },
  {
    alert: 'SluiceIngestGone',
    minutes: 25,
    series: {},
    silent: { targets: 'sluice-ingest', at: 10 },
    summary: "Nothing is left to scrape of a cell's ingest",
  },
  {
    alert: 'SluiceProcessorDown',
    minutes: 20,
    series: { [processor('up')]: jumps(10, 1, 0) },
    silent: { targets: PROCESSORS[0], at: 10 },
    labels: ofInstance(PROCESSORS[0], 'sluice-processor'),
    summary: `No answer from the processor ${PROCESSORS[0]}; what is accepted waits in the streams`,
  },
  {
    alert: 'SluiceProcessorGone',
    minutes: 25,
    series: {},
    silent: { targets: 'sluice-processor', at: 10 },
    summary: "Nothing is left to scrape of a cell's processor; what is accepted waits in the streams",
  },
  {
    alert: 'SluiceFailing',
    minutes: HISTORY + 10,
    series: burst('failed'),
    summary: '3.175% of the requests of an hour were answered 500, and it goes on',
  },
  {
    alert: 'SluiceFailingSlowly',
    minutes: HISTORY,
    series: smoulder('failed'),
    summary: '0.9524% of the requests of six hours were answered 500, and it goes on',
  },
  {
    alert: 'SluiceOverloaded',
    minutes: HISTORY + 10,
    series: burst('overloaded'),
    summary: '3.175% of the requests of an hour were answered 503, and it goes on',
  },
  {
    alert: 'SluiceOverloadedSlowly',
    minutes: HISTORY,
    series: smoulder('overloaded'),
    summary: '0.9524% of the requests of six hours were answered 503, and it goes on',
  },
  {
    alert: 'SluiceLimiterUnavailable',
    minutes: 15,
    series: { [requests('limiter_unavailable')]: rate(60) },
    summary: 'Redis does not answer; 300 requests of five minutes were refused with 429',
  },
  {
    alert: 'SluiceLimiterStateLost',
    minutes: 15,
    series: { [ingest('sluice_limiter_state_lost_total')]: jumps(10, 0, 1) },
    summary: 'Redis has lost rate windows that it had acknowledged',
  },
  {
    alert: 'SluiceCountersRestored',
    minutes: 15,
    series: { [ingest('sluice_counters_restored_total')]: jumps(10, 0, 3) },
    summary: "Redis has lost the month's counts of 3 projects; they went on from checkpoints",
  },
  {
    alert: 'SluiceLeadersTogether',
    minutes: 60,
    series: {
      [leader('SLUICE_CHUNKS', 'nats-1')]: () => '1x10',
      [leader('SLUICE_CHUNKS', 'nats-0')]: jumps(10, '_', 1),
      [leader('SLUICE_DEAD_LETTERS', 'nats-2')]: () => '1x10',
      [leader('SLUICE_DEAD_LETTERS', 'nats-0')]: jumps(10, '_', 1),
    },
    summary: 'One server leads 4 streams, more than half, and bears the load of all',
  },
  {
    alert: 'SluiceSlow',
    minutes: 25,
    series: slow('request', '0.5', '1'),
    summary: 'One request in a hundred takes longer than 994.4ms',
  },
  {
    alert: 'SluiceRedisSlow',
    minutes: 25,
    series: slow('redis_call', '0.1', '0.25'),
    summary: 'One Redis call in a hundred takes longer than 248.3ms; at 0.7 s it counts as away',
  },
  {
    alert: 'SluicePublishSlow',
    minutes: 25,
    series: slow('publish', '0.5', '1'),
    summary: 'One acknowledgement in a hundred takes longer than 994.4ms; at 2 s the answer is 500',
  },
  {
    alert: 'SluiceWorkersRestarting',
    minutes: 15,
    series: { [ingest('sluice_worker_restarts_total')]: jumps(10, 0, 1) },
    labels: { instance: INGEST[0] },
    summary: `A worker of ${INGEST[0]} died and was started again`,
  },
  {
    alert: 'SluiceMemoryHigh',
    minutes: 10,
    series: { [ingest('sluice_buffered_bytes')]: steady(320 * 1024 * 1024) },
    labels: { instance: INGEST[0] },
    summary: `Workers of ${INGEST[0]} hold 160MiB of bodies each; at 192 MiB they answer 503`,
  },
  {
    alert: 'SluiceJetStreamUnavailable',
    minutes: 15,
    series: { [ingest('sluice_jetstream_available')]: jumps(10, 1, 0) },
    labels: { instance: INGEST[0] },
    summary: `JetStream does not answer ${INGEST[0]}; without it nothing is accepted and nothing stored`,
  },
  {
    alert: 'SluiceStreamMissing',
    minutes: 15,
    series: { [ingest('sluice_jetstream_missing', 'name="KV_sluice_projects"')]: jumps(10, 0, 1) },
    labels: { name: 'KV_sluice_projects' },
    summary: 'KV_sluice_projects does not exist',
  },
  {
    alert: 'SluiceStreamRestored',
    minutes: 15,
    series: {
      [processor('sluice_jetstream_restored_total', 'name="SLUICE_EVENTS/processor"')]: jumps(10, 0, 1),
    },
    labels: { name: 'SLUICE_EVENTS/processor' },
    summary: 'Somebody deleted SLUICE_EVENTS/processor; the processor has made it again',
  },
  {
    alert: 'SluiceReplicasBehind',
    minutes: 20,
    series: { [stream('replicas_current', 'SLUICE_CHUNKS')]: jumps(10, 3, 2) },
    labels: { stream: 'SLUICE_CHUNKS' },
    summary: 'Only 2 copies of SLUICE_CHUNKS are current',
  },
  {
    alert: 'SluiceFiguresGone',
    minutes: 55,
    series: Object.fromEntries(
      PROCESSORS.map((instance) => [pending(instance, 'SLUICE_LOGS'), () => '0x40']),
    ),
    labels: { stream: 'SLUICE_LOGS' },
    summary: 'Nothing is known of SLUICE_LOGS any more',
  },
  {
    alert: 'SluiceStreamFilling',
    minutes: 10,
    series: { [stream('bytes', 'SLUICE_EVENTS')]: steady(0.75 * STREAM_BYTES) },
    labels: { stream: 'SLUICE_EVENTS' },
    summary: 'SLUICE_EVENTS is 75% full; a full stream refuses what comes',
  },
  {
    alert: 'SluiceChunksFilling',
    minutes: 10,
    series: { [stream('bytes', 'SLUICE_CHUNKS')]: steady(0.8 * STREAM_BYTES) },
    labels: { stream: 'SLUICE_CHUNKS' },
    summary: 'SLUICE_CHUNKS is 80% full; large envelopes are refused when it is full',
  },
  {
    // 0.4 % a minute: full in three hours, and at 35 % when it is seen.
    alert: 'SluiceStreamFullSoon',
    minutes: 60,
    series: { [stream('bytes', 'SLUICE_EVENTS')]: (minutes) => `1200+40x${minutes}` },
    labels: { stream: 'SLUICE_EVENTS' },
    summary: 'SLUICE_EVENTS is full within four hours if it goes on as in the last half an hour',
  },
  {
    alert: 'SluiceLagging',
    minutes: 10,
    series: { [processor('sluice_processing_lag_seconds')]: steady(90) },
    summary: 'What is processed now was accepted 1m 30s ago',
  },
  {
    alert: 'SluiceBacklogGrows',
    minutes: 40,
    series: Object.fromEntries(
      PROCESSORS.map((instance) => [pending(instance), (minutes: number) => `1000+1000x${minutes}`]),
    ),
    summary: '41k messages wait and their number grows',
  },
  {
    alert: 'SluiceNothingStored',
    minutes: 20,
    series: { [processed('stored')]: steady(5) },
    summary: 'Messages wait, and none was stored or set aside for a quarter of an hour',
  },
  {
    alert: 'SluiceSinkFailing',
    minutes: 20,
    series: { [sinkFailing]: jumps(10, 0, 1) },
    labels: { sink: 'postgres://db/sluice' },
    summary: 'postgres://db/sluice takes nothing, or not within 5 s; what is accepted waits in the streams',
  },
  {
    alert: 'SluiceDeadLetters',
    minutes: 12,
    series: { [processed('dead_letter')]: jumps(10, '_', 3) },
    summary: '3 items could not be stored',
  },
  {
    alert: 'SluiceDeadLettersDropped',
    minutes: 14,
    series: { [processor('sluice_dead_letters_dropped_total')]: jumps(10, 0, 3) },
    summary:
      'Dead letters are dropped; a project has filled its share of their stream, or the stream takes none',
  },
  {
    alert: 'SluiceStrangers',
    minutes: 50,
    series: { [requests('forbidden_key')]: rate(5_670) },
    summary: '90.48% of requests have no valid key',
  },
  {
    alert: 'SluiceAdminTokensRefused',
    minutes: 20,
    series: { [ingest('sluice_admin_tokens_refused_total')]: rate(4) },
    labels: { job: 'sluice-ingest' },
    summary: '60 requests to the admin port of sluice-ingest had a wrong token within 15 minutes',
  },
  {
    alert: 'SluiceCredentialsExpire',
    minutes: 10,
    series: {
      [processor('sluice_credentials_expire_timestamp_seconds')]: steady(3 * DAY),
    },
    labels: { job: 'sluice-processor' },
    summary: 'The NATS credentials of sluice-processor end in 2d 23h 50m 0s',
  },
  {
    alert: 'SluiceCertificateExpires',
    minutes: 10,
    series: { [certificate('redis:6379')]: steady(3 * DAY) },
    labels: { server: 'redis:6379' },
    summary: 'The certificate of redis:6379 ends in 2d 23h 50m 0s',
  },
  {
    alert: 'SluiceNatsDown',
    minutes: 20,
    series: { [health('ok')]: () => '1x10 stale', [health('unreachable')]: jumps(10, '_', 0) },
    labels: { instance: NATS[0] },
    summary: `The NATS server of ${NATS[0]} does not answer, or is not part of the cluster`,
  },
  {
    alert: 'SluiceNatsSlowConsumers',
    minutes: 15,
    series: { [nats('gnatsd_varz_slow_consumers')]: jumps(10, 0, 1) },
    labels: { instance: NATS[0] },
    summary: `The NATS server of ${NATS[0]} closed connections whose clients did not read`,
  },
  {
    alert: 'SluiceRedisDown',
    minutes: 20,
    series: { [redis('redis_up', REDIS[1])]: jumps(10, 1, 0) },
    labels: { instance: REDIS[1] },
    summary: `The Redis of ${REDIS[1]} does not answer`,
  },
  {
    alert: 'SluiceRedisMemoryHigh',
    minutes: 10,
    series: { [redis('redis_memory_used_bytes')]: steady(0.9 * MAXMEMORY) },
    labels: { instance: REDIS[0] },
    summary: `The Redis of ${REDIS[0]} has used 90% of its memory; a full one refuses writes`,
  },
  {
    alert: 'SluiceRedisLogFailing',
    minutes: 20,
    series: { [redis('redis_aof_last_write_status')]: jumps(10, 1, 0) },
    labels: { instance: REDIS[0] },
    summary: `The Redis of ${REDIS[0]} cannot write its append-only file`,
  },
  {
    alert: 'SluiceRedisReplicaMissing',
    minutes: 20,
    series: { [redis('redis_connected_slaves')]: jumps(10, 2, 1) },
    summary: 'Redis has fewer replicas (1) than within the last day',
  },
];

/** Scenes in which nobody is called, though not all is as on the best of days. */
export const QUIET: readonly { name: string; minutes: number; series: Series }[] = [
  { name: 'all is well', minutes: 60, series: {} },
  {
    name: 'another Redis becomes the primary',
    minutes: 40,
    series: {
      [redis('redis_connected_slaves')]: jumps(20, 2, 0),
      [redis('redis_connected_slaves', REDIS[1])]: jumps(21, 0, 2),
    },
  },
  {
    name: 'a few requests of a cell without traffic fail',
    minutes: 60,
    series: {
      [requests('accepted')]: rate(1),
      [requests('unauthenticated')]: rate(0),
      [requests('failed')]: jumps(50, 0, 6),
      [requests('overloaded')]: jumps(50, 0, 6),
      [requests('limiter_unavailable')]: jumps(50, 0, 6),
    },
  },
  {
    name: 'a young cell refuses some requests in one moment',
    minutes: 60,
    series: {
      [requests('accepted')]: (minutes) => `_x10 0+60x${minutes - 11}`,
      ...Object.fromEntries(
        ['failed', 'overloaded', 'limiter_unavailable'].map((outcome) => [
          requests(outcome),
          (minutes: number) => `_x10 0 40x${minutes - 12}`,
        ]),
      ),
    },
  },
  {
    name: 'a burst of traffic is worked off',
    minutes: 40,
    series: {
      [stream('bytes', 'SLUICE_EVENTS')]: (minutes) => `1000+100x10 2000-100x10 1000x${minutes - 22}`,
      [pending(PROCESSORS[0])]: (minutes) => `400+100x10 1400-100x10 400x${minutes - 22}`,
    },
  },
  {
    name: 'an ingest process is taken away beside another',
    minutes: 30,
    series: { [ingest('up', '', INGEST[1])]: () => '1x10' },
  },
];

export type InputSeries = { series: string; values: string };

function seriesOf(
  cell: Cell,
  all: Series,
  { minutes, silent }: Pick<Scene, 'minutes' | 'silent'>,
): InputSeries[] {
  return Object.entries(all).map(([name, values]) => {
    const ends = silent && name.includes(`"${silent.targets}"`) && !isDown(name, silent.targets);
    const series = name.replace('{', `{cluster="${cell.cluster}",namespace="${cell.namespace}",`);
    return { series, values: values(ends ? silent.at : minutes + 1) };
  });
}
/** Prometheus goes on to say of a target that it has that it does not answer. */
const isDown = (name: string, targets: string): boolean =>
  name.startsWith('up{') && !targets.startsWith('sluice-');

/** Of both cells. */
export const inputSeries = (scene: Pick<Scene, 'minutes' | 'series' | 'silent'>): InputSeries[] => [
  ...seriesOf(WELL, healthy(10), { minutes: scene.minutes }),
  ...seriesOf(ILL, { ...healthy(1), ...scene.series }, scene),
];
