/**
 * The bounds that more than one module uses, with their reasons, and the defaults of settings. A
 * bound with one user may be beside it.
 */
import { assert } from './lib/assert.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

// ---- A body ----
/** As transmitted; beyond it 413. Default of SLUICE_MAX_BODY_BYTES. */
export const BODY_BYTES_MAX = 5 * MIB;
/** After decompression; beyond it 413. Default of SLUICE_MAX_DECOMPRESSED_BYTES. */
export const DECOMPRESSED_BYTES_MAX = 20 * MIB;
/** Neither setting may exceed this: a processor joins a whole envelope in memory. */
export const BODY_BYTES_SETTING_MAX = 100 * MIB;
/** First line of an envelope, without its newline. */
export const ENVELOPE_HEADER_BYTES_MAX = 16 * KIB;
/** One item header line, without its newline. */
export const ITEM_HEADER_BYTES_MAX = 16 * KIB;
export const ITEMS_MAX = 1_000;
/** Item header lines of one envelope together: they are held in memory whatever is spooled. */
export const ITEM_HEADERS_BYTES_MAX = 256 * KIB;
/** Up to here an envelope is held as owned bytes; above it is spooled to an unlinked file. */
export const INLINE_BYTES_MAX = 128 * KIB;
/** Above this many held bytes per worker INLINE_BYTES_MAX shrinks to INLINE_BYTES_MIN. */
export const HELD_BYTES_TIGHT = 64 * MIB;
export const INLINE_BYTES_MIN = 16 * KIB;
/**
 * Held bytes per worker: bodies, header lines, inflaters, what waits for the disk; beyond it new
 * requests get 503.
 */
export const HELD_BYTES_MAX = 192 * MIB;
/** Beyond this, uploads of a project that holds more than its share end in the middle. */
export const HELD_BYTES_SCARCE = 144 * MIB;
/** Bytes of spool files per worker, 400 bodies that inflate to the cap, where nothing is set. */
export const SPOOL_BYTES_MAX = 8 * GIB;
/** Uploads of one worker that are spooled or inflated in pieces; beyond it 503. */
export const UPLOADS_MAX = 1_000;
/**
 * Bytes of whole uploads that wait for the stream (UNPACED_BYTES_MAX bounds others); beyond it
 * uploads that arrive pause. A stream of 20 MB/s stores them in time.
 */
export const WHOLE_UPLOADS_BYTES_MAX = 32 * MIB;
/**
 * Spooled bytes of bodies that were whole and inflated in the loop, so that no pause holds them
 * back; beyond it 503. 80 MB/s store them in time.
 */
export const UNPACED_BYTES_MAX = 128 * MIB;
/** Bytes of all uploads that wait for inflaters and the disk; beyond it large ones are paused. */
export const QUEUED_BYTES_MAX = 16 * MIB;
/** Uploads that are let go in one turn of the loop: each may be whole with its next chunk. */
export const UPLOADS_RESUMED_PER_TURN = 2;
/** Bytes of an upload that wait for the disk before its socket pauses. */
export const SPOOL_QUEUE_BYTES_MAX = 1 * MIB;
/** The same while the worker holds more than HELD_BYTES_TIGHT. */
export const SPOOL_QUEUE_BYTES_TIGHT = 128 * KIB;
/** Free blocks of a worker that are kept for the next upload. */
export const SPOOL_BLOCKS_KEPT = 256;
/** Size of a block of the spool's memory; a write takes all that wait. */
export const SPOOL_BLOCK_BYTES = 32 * KIB;
/** A whole body that is compressed to at most this is inflated synchronously, in the event loop. */
export const SYNC_INFLATE_BYTES_MAX = 64 * KIB;
/**
 * It is so only up to this many inflated bytes, some 3 ms of the event loop. A body of which more
 * comes out waits for its turn, and is inflated by zlib's threads.
 */
export const SYNC_INFLATED_BYTES_MAX = 1 * MIB;
/** Inflated size of all bodies in the InflationQueue, waiting or at work; beyond it 503. */
export const INFLATING_BYTES_MAX = 128 * MIB;
/**
 * Inflated size of the bodies in the InflationQueue that are at work. A body is at work from its
 * first inflated byte until its envelope is stored. A larger one is at work alone.
 */
export const INFLATED_AT_ONCE_BYTES_MAX = 24 * MIB;
/** How long one of them waits for its turn, then 503: half of the time is left to store it. */
export const INFLATION_WAIT_MS_MAX = 1_000;
/** A compressed body swells when this many times its size comes out: JSON seldom reaches 30. */
export const SWELLING_RATIO_MIN = 64;
/**
 * How long a project rests for each MiB that came out of bodies that swell, if others send too. To
 * inflate, store and process 19 MiB takes half a second of CPU, so one project has a twentieth of a
 * core.
 */
export const SWOLLEN_REST_MS_PER_MIB = 500;
/**
 * MiB that may come out of a project's swelling bodies before it must rest. They are free again at
 * the pace of SWOLLEN_REST_MS_PER_MIB. Honest projects seldom need more.
 */
export const SWOLLEN_FREE_MIB = 64;
/** Compressed bytes before an inflater starts, and that wait for it before its socket pauses. */
export const INFLATER_QUEUE_BYTES_MAX = 256 * KIB;
/** The same while the worker holds more than HELD_BYTES_TIGHT. */
export const INFLATER_QUEUE_BYTES_TIGHT = 64 * KIB;
/**
 * Output of a worker's inflaters from one young collection to the next. With 16 MiB V8 (Node 24)
 * still marked the whole heap once in twelve.
 */
export const OUTPUT_GARBAGE_BYTES_MAX = 8 * MIB;
/** Largest window of a zstd frame (RFC 8878 section 3.1.1.1.2 asks decoders for at least this). */
export const ZSTD_WINDOW_BYTES_MAX = 8 * MIB;
/** Frames of one zstd body: each costs a trip to zlib's threads, some 20 µs of the event loop. */
export const ZSTD_FRAMES_MAX = 1_000;
/**
 * Bytes of one field that filters get. JSON.parse takes 50 ms for a MiB of brackets, so structures
 * have a bound of their own.
 */
export const PICKED_BYTES_MAX = 1 * MIB;
export const PICKED_STRUCTURE_BYTES_MAX = 256 * KIB;
export const PICKED_STRING_BYTES_MAX = 64 * KIB;
export const PICKED_DEPTH_MAX = 64;
/** Chunks up to here are kept whole for any piece; of larger ones a small piece is copied. */
export const VIEWED_CHUNK_BYTES = 16 * KIB;
/** Pieces of any size of a body; further ones must bring BODY_PIECE_BYTES_MIN on average. */
export const BODY_PIECES_FREE = 1_000;
export const BODY_PIECE_BYTES_MIN = 64;

// ---- Time per request ----
/** Spent waiting for the client; a longer body is cut. */
export const BODY_MS_MAX = 60_000;
/** How long a body is paused in all, then 503. 400 uploads of 19 MiB took 43 s. */
export const BODY_PAUSED_MS_MAX = 120_000;
/** After this grace the body must keep BODY_RATE_BYTES_PER_SEC over any BODY_RATE_WINDOW_MS. */
export const BODY_GRACE_MS = 10_000;
export const BODY_RATE_WINDOW_MS = 10_000;
export const BODY_RATE_BYTES_PER_SEC = 4_000;
/** uWebSockets.js cuts slow bodies after some 10 s; re-arming lets our own bounds decide. */
export const BODY_REARM_MS = 4_000;
/** Bytes of a refused body that are read and dropped, or the answer would arrive as a reset. */
export const REFUSED_DRAIN_BYTES_MAX = 2 * BODY_BYTES_SETTING_MAX;
/** So many times the pieces that a body may have: a piece costs as much when it is dropped. */
export const REFUSED_DRAIN_PIECES_RATIO = 10;
/**
 * An envelope's from its last body byte, a heartbeat's from its publish. After it nothing more is
 * tried: 503 when nothing can have been queued (500 where the disk is why), else 500. The admission
 * has time-outs of its own, REDIS_REPLY_MS_MAX and CHECKPOINT_READ_MS_MAX.
 */
export const ANSWER_MS_MAX = 2_000;

// ---- A request ----
export const REQUEST_HEADER_BYTES_MAX = 16 * KIB;
/** Under 99: uWebSockets.js closes a connection whose head has more, without a word. */
export const REQUEST_HEADERS_MAX = 64;
export const URL_BYTES_MAX = 4 * KIB;
/**
 * One answer of a worker in this many closes its connection. Without it, clients that keep their
 * connections never reach a worker that started after them, and the busiest worker stays the
 * busiest. nginx closes a connection after 1,000 requests unless it is told otherwise.
 */
export const ANSWERS_PER_CLOSE = 1_000;
/** Requests of one worker that are between their first byte and their answer. */
export const REQUESTS_IN_FLIGHT_MAX = 20_000;

// ---- Limiter ----
export const RATE_WINDOW_MS = 60_000;
export const RATE_BUCKET_MS = 250;
/** A longer silence of Redis is an absence, a shorter one a stall that requests wait out. */
export const REDIS_REPLY_MS_MAX = 700;
/** One attempt to connect. A worker that starts waits this long for Redis, then goes on. */
export const REDIS_CONNECT_MS_MAX = 1_000;
/**
 * A quota whose count is missing waits this long for its checkpoint: longer than an absence of the
 * broker that refuses nobody.
 */
export const CHECKPOINT_READ_MS_MAX = 1_750;
/** How long the tokens are leased that requests wait for. */
export const LEASE_NEED_MS = 250;
/**
 * LEASE_NEED_MS while replies are slow: a reply within REDIS_REPLY_MS_MAX finds its lease alive.
 */
export const LEASE_NEED_SLOW_MS = 750;
/** How long a reserve is leased. */
export const LEASE_RESERVE_MS = 500;
/**
 * Limits up to here lease in reserve only while their window is contended. So a window that is not
 * contended admits exactly its first N requests before it refuses. This and CONTENDED_MS are as in
 * admit.lua, which decides.
 */
export const EXACT_LIMIT_MAX = 1_000;
/** All reserve outstanding together, as a share of the limit. */
export const RESERVE_SHARE_MAX = 0.005;
/** The same while the window is contended: reserve is then used at once, so it may be larger. */
export const CONTENDED_RESERVE_SHARE_MAX = 0.02;
/** How long a window is contended after it was last full or scarce. */
export const CONTENDED_MS = 65_000;
/**
 * For benches; `ingest/limit/heartbeat.lua` decides by a figure of its own, and a test compares
 * them.
 */
export const HEARTBEATS_PER_SECOND = 5;
export const RATE_LIMIT_MIN = 1;
export const RATE_LIMIT_MAX = 100_000;
/** Retry-After on 429, seconds. */
export const RETRY_AFTER_SEC = 60;
/** How old a quota checkpoint of an active project may be. */
export const CHECKPOINT_MS_MAX = 10_000;

/** Characters of an SDK's or client's name and version, which are stored with each item. */
export const CLIENT_CHARS_MAX = 256;
/** Characters of a User-Agent that is filled into each element of a container. */
export const AGENT_CHARS_MAX = 512;

// ---- Registry ----
/** Time-out of one request to the bucket: a mirror heals within 5 s of reconnecting. */
export const REGISTRY_REQUEST_MS = 1_500;
/** A read of a bucket that delivers nothing for this long is given up and begun again. */
export const REGISTRY_STALL_MS = 2_000;
/**
 * With each failure the factor doubles by which REGISTRY_REQUEST_MS and REGISTRY_STALL_MS are
 * multiplied, up to this one: a busy broker must not get busier.
 */
export const REGISTRY_TIMEOUT_FACTOR_MAX = 8;
/** Entries of a bucket that one turn of the loop handles, some 3 ms of CPU. */
export const REGISTRY_SLICE_ENTRIES = 500;
/** How often a mirror compares its watch with the server; what differs twice is stale. */
export const REGISTRY_CHECK_MS = 1_000;
export const REGISTRY_RETRY_MS_MIN = 100;
export const REGISTRY_RETRY_MS_MAX = 1_000;
/** How often a worker adds outcomes to the ledger. */
export const LEDGER_FLUSH_MS = 5_000;
/** Projects whose outcomes one such flush adds at most. */
export const LEDGER_WRITES_PER_FLUSH_MAX = 250;
/** Days of hourly outcomes that are kept for each project. */
export const OUTCOME_DAYS_KEPT = 32;
/** Keys of one project: a request's key is held against each. */
export const PROJECT_KEYS_MAX = 100;
export const LABEL_CHARS_MAX = 100;

// ---- Frames ----
/** Entries that may share one frame. */
export const FRAME_ENTRIES_MAX = 256;
/** Deadlines of entries that share a frame; the earliest ends the attempts for all. */
export const FRAME_DEADLINES_APART_MS_MAX = 250;
/** Frames in flight per stream and shard below which a frame leaves at the end of the turn. */
export const FRAMES_IN_FLIGHT_EAGER = 4;
export const FRAMES_IN_FLIGHT_MAX = 32;
/** Bytes queued or in flight per stream and shard, and over all streams of a worker. */
export const STREAM_BYTES_IN_FLIGHT_MAX = 32 * MIB;
export const PUBLISH_BYTES_IN_FLIGHT_MAX = 96 * MIB;
export const PUBLISH_ENTRIES_IN_FLIGHT_MAX = 20_000;
/**
 * Bytes that wait on a connection to the broker, beyond which no frame and no part is sent on it.
 * It is reached when the broker stands still or is slow: repeated sends wait there too, and what
 * was answered 500 meanwhile.
 */
export const UNSENT_BYTES_MAX = PUBLISH_BYTES_IN_FLIGHT_MAX;
/** Time-out of one publish attempt; a further one is made while the answer's deadline allows it. */
export const PUBLISH_ATTEMPT_MS = 800;
/**
 * One frame or part, however much the broker's max_payload allows: half of its default. A batch of
 * a sink is made of several, and a part is read back in base64, a third larger.
 */
export const FRAME_BYTES_MAX = 512 * KIB;
/** Room for NATS headers and MessagePack framing below half the broker's max_payload. */
export const FRAME_OVERHEAD_BYTES = 4 * KIB;
/** A stream that refuses for a reason that passes (a new leader) is asked again after this. */
export const PUBLISH_PAUSE_MS = 250;
/**
 * After a refusal, no attempt begins with less time left for its answer: an attempt without an
 * answer turns a certain 503 into a 500.
 */
export const PUBLISH_ANSWER_MS_MIN = 100;
/**
 * A shorter absence of the broker, or of a stream's leader, is waited out. After it, what was never
 * written is refused.
 */
export const BROKER_AWAY_MS_MAX = 1_500;
/** Large envelopes of one worker that write parts at the same time; others wait. */
export const LARGE_ENTRIES_ACTIVE_MAX = 4;
/** Parts of one large envelope that are in flight together. */
export const PARTS_IN_FLIGHT_MAX = 4;
/**
 * From the first part to the frame's acknowledgement: a net for a process that stood still, whose
 * parts may be swept. The answer is due after ANSWER_MS_MAX as ever.
 */
export const PARTS_AGE_MS_MAX = 300_000;
export const CHUNK_SWEEP_DELAY_MS = 600_000;
export const CHUNK_SWEEP_EVERY_MS = 60_000;
export const DEDUP_WINDOW_MS = 120_000;
/** Frames of one stream that processors hold together: more than a batch of small frames. */
export const CONSUMER_ACK_PENDING_MAX = 10_000;

// ---- Work of a project (stream/work.ts) ----
/** An entry of more estimated work is decoded beside its stream. 20 MiB are less, unscrubbed. */
export const HEAVY_ENTRY_MS = 250;
/** Such an entry adds at most this to its project's debt at a worker: others do not wait for it. */
export const HEAVY_OWES_MS = 50;
/** Such entries that are decoded at once, each of another project. */
export const HEAVY_DECODING_MAX = 2;
/** No further one begins while those that are decoded and not written have so many bytes. */
export const HEAVY_DECODED_BYTES_MAX = 64 * MIB;
/** A project whose frames wait longer for that, or are larger together, is named. */
export const HEAVY_WAIT_MS_MAX = 10_000;
export const HEAVY_WAITING_BYTES_MAX = 4 * MIB;
/**
 * Work that a project may owe at a machine's workers together; batches need the other second of
 * two.
 */
export const WORK_FREE_MS = 1_000;
/** The workers that divide it; of more each has a quarter: a client may have one connection. */
export const WORKERS_SHARING_FREE_MAX = 4;
/** Older frames make a processor late: a batch waits a second for the one before it. */
export const WORK_BEHIND_MS = 1_500;
/** The part of a processor's time that one project may need while the processor is late. */
export const WORK_PART_MAX = 1 / 2;
/**
 * While a processor is late, it names projects that owe so much: the work of a plain envelope of 20
 * MiB is less, whose project may send it at any moment.
 */
export const WORK_HEAVY_MS = 500;
/** A stream in which a project sent nothing for so long has no part in what time pays off. */
export const WORK_STREAM_MS = 10_000;
export const WORK_NAMED_EVERY_MS = 250;
/** How long a named project is refused. */
export const WORK_REST_MS = 1_000;
/** How long the price of a named project's work stays, until it halves. */
export const WORK_PRICE_HALVED_MS = 30_000;
export const WORK_PRICE_MAX = 64;
/** Nobody is named for a project's sake that was not seen for this long. */
export const WORK_OTHERS_MS = 600_000;
/** Debts that are paid are looked for when there are more. */
export const DEBTS_SWEPT_MIN = 10_000;

// ---- Processor ----
export const RECORDING_BYTES_MAX = 64 * MIB;
/** A recording that inflates beyond both draws on its project's budget. */
export const INFLATION_FREE_BYTES = 1 * MIB;
export const INFLATION_FREE_RATIO = 16;
/**
 * Inflated bytes of one project in one processor: at once, and the part that comes back each
 * second.
 */
export const INFLATION_BUDGET_BYTES = 64 * MIB;
export const INFLATION_BUDGET_BYTES_PER_SEC = 1 * MIB;
/**
 * Text that replaces private data may be longer than the data. An item that would grow beyond this
 * is not stored.
 */
export const SCRUBBED_BYTES_MAX = 2 * RECORDING_BYTES_MAX;
/** First line of a recording, which gives its segment_id. */
export const RECORDING_HEADER_BYTES_MAX = 4 * KIB;
/** Work on items holds the processor's event loop for this long at a time. */
export const SLICE_MS_MAX = 5;
/** Smaller items are decoded at once. */
export const SLICED_BYTES_MIN = 64 * KIB;
export const SINK_BATCH_BYTES_MAX = 8 * MIB;
/** Lines of a batch that are in memory; beyond it they go to its unfinished file. */
export const SINK_BLOCK_BYTES = 1 * MIB;
/** How long a batch that is not full waits after the one before it: few, large files. */
export const SINK_FILE_MS_MIN = 1_000;
/** A batch that failed is tried again after this, doubled up to SINK_RETRY_MS_MAX. */
export const SINK_RETRY_MS_MIN = 100;
export const SINK_RETRY_MS_MAX = 5_000;
/** A call of a sink that takes longer is told: the sink is failing until it ends. */
export const SINK_STALLED_MS = 5_000;
/** Frames that one batch takes from the prefetched ones. */
export const SINK_BATCH_FRAMES_MAX = 1_000;
/** Prefetched and in hand per stream and shard; many of them share PREFETCH_TOTAL_BYTES_MAX. */
export const PREFETCH_BYTES_MAX = 16 * MIB;
export const PREFETCH_TOTAL_BYTES_MAX = 128 * MIB;
export const PREFETCH_FRAMES_MAX = 2 * SINK_BATCH_FRAMES_MAX;
/** How long one pull lasts at the broker; with a shorter ack wait than ours, half of that. */
export const PULL_EXPIRES_MS = 5_000;
/** A consumer is looked at for messages that are gone at most this often. */
export const GONE_LOOK_MS = 20_000;
/** A stream or consumer that is missing is asked for again after this. */
export const PULL_RETRY_MS = 1_000;
/** One server may lead more than half of the streams for this long. */
export const LOPSIDED_MS_MAX = 300_000;
/** How often the processor looks whether its streams and consumers are there. */
export const KEEP_LOOK_MS = 5_000;
/** How often the processor looks whether Redis lost counts; then it compares all with its tally. */
export const LOSS_LOOK_MS = 15_000;
/**
 * Looks at one loss before the last, which waits until the streams have moved past the one before.
 * Several: of a busy project each sees the requests under way as missing in the tally.
 */
export const LOSS_LOOKS_MIN = 4;
/** Wait for the broker to confirm an acknowledgement, a dead letter or a count. */
export const BROKER_REPLY_MS_MAX = 5_000;
/** The broker delivers a frame again after this much silence, as when a processor was killed. */
export const ACK_WAIT_MS = 10_000;
/** From this delivery on a frame is handled alone. */
export const DELIVERIES_BEFORE_ALONE = 3;
/** So many of these, one after the other, while everything else in the process waits. */
export const SUSPECTS_IN_TURN_MAX = 100;
/**
 * A frame becomes a dead letter, and its items are not decoded, when its crashes weigh this much
 * (CRASH_WEIGHT).
 */
export const FRAME_CRASHES_MAX = 3;
export const RESEND_WINDOW_MS = 600_000;
/** How long a sink knows a frame that it has stored, by a monotonic clock: above any redelivery. */
export const FRAME_MEMORY_MS = 600_000;
/** How far data may lag behind what was stored before it: large envelopes, by five minutes. */
export const RECEIVED_DISORDER_MS_MAX = 300_000;
/** The server ends a transaction, and its locks, when its processor is silent for this long. */
export const POSTGRES_IDLE_MS_MAX = 8_000;
/** Requests of one processor to ClickHouse at the same time; others wait. */
export const CLICKHOUSE_CONNECTIONS_MAX = 10;
/**
 * The same to PostgreSQL, which has 100 by default: the twelve processors that deploy/kubernetes
 * allows take 72.
 */
export const POSTGRES_CONNECTIONS_MAX = 6;
/** One request; a store that is slower is taken for away, and the frames are tried again. */
export const CLICKHOUSE_REQUEST_MS_MAX = 60_000;
/** An object of the s3 sink is stored when it has this much, before or after it is packed. */
export const S3_OBJECT_BYTES_MAX = 64 * MIB;
export const S3_OBJECT_PACKED_BYTES_MAX = 16 * MIB;
/** Frames that wait for their object; the broker lets processors hold CONSUMER_ACK_PENDING_MAX. */
export const S3_OBJECT_FRAMES_MAX = 2_500;
/** The longest time that a record waits for its object; an option of the URL. */
export const S3_OBJECT_SEC = 60;
/** Part of a larger object; S3 takes no part below 5 MiB. */
export const S3_PART_BYTES = 8 * MIB;
export const S3_REQUEST_MS_MAX = 60_000;
/** After an hour's end by the data's time: twice RECEIVED_DISORDER_MS_MAX. */
export const MANIFEST_DELAY_MS = 600_000;
/** Index files that are no longer needed are removed this many at a time. */
export const INDEX_PRUNE_COUNT = 64;
/** Months of the tally that are kept, the newest ones. */
export const TALLY_MONTHS_MAX = 3;
/** Writing the parts of one large dead letter that is replayed. */
export const REPLAY_MS_MAX = 60_000;
export const DEAD_LETTER_AGE_MS = 30 * 24 * 3_600_000;
export const AUDIT_AGE_MS = 365 * 24 * 3_600_000;
export const STREAM_BYTES_DEFAULT = 10 * GIB;
export const STREAM_BYTES_DEV = 256 * MIB;

// ---- The page of the admin port ----
/** Projects whose figures one worker keeps for the page, some 200 bytes each. */
export const PROJECTS_WATCHED_MAX = 2_000;
export const PROJECTS_SHOWN_MAX = 20;

// ---- Processes ----
/** A worker that is silent for this long is killed: it would still be given connections. */
export const WORKER_SILENT_MS_MAX = 5_000;
/** Not ready, but still serving, so that a balancer looks away first. */
export const SHUTDOWN_PAUSE_MS = 1_000;
/** How long idle connections stay open after the listener closed and the last answer left. */
export const SHUTDOWN_LINGER_MS = 2_000;
/** From the closed listener (of a processor: the signal) to the exit, whatever is under way. */
export const SHUTDOWN_MS_MAX = 25_000;
/** How long a processor that stops goes on to store what it has in hand. */
export const STOP_STORE_MS_MAX = 5_000;

assert(INLINE_BYTES_MIN <= INLINE_BYTES_MAX && INLINE_BYTES_MAX < BODY_BYTES_MAX, 'a full body is spooled');
assert(ENVELOPE_HEADER_BYTES_MAX <= INLINE_BYTES_MIN, 'a header line always fits inline');
assert(SPOOL_BLOCK_BYTES * 2 <= SPOOL_QUEUE_BYTES_MAX, 'one block is written while others fill');
assert(
  HELD_BYTES_TIGHT < HELD_BYTES_SCARCE && HELD_BYTES_SCARCE < HELD_BYTES_MAX,
  'the inline bound shrinks before uploads end, and those of greedy projects end first',
);
assert(BODY_BYTES_MAX <= DECOMPRESSED_BYTES_MAX, 'an uncompressed body passes the second cap');
assert(DECOMPRESSED_BYTES_MAX <= BODY_BYTES_SETTING_MAX, 'the default is a legal setting');
assert(
  [LEASE_NEED_MS, LEASE_NEED_SLOW_MS, LEASE_RESERVE_MS].every((ms) => ms % RATE_BUCKET_MS === 0),
  'leases end on buckets',
);
assert(REDIS_REPLY_MS_MAX <= LEASE_NEED_SLOW_MS, 'a slow reply that is waited for finds its lease alive');
assert(BODY_BYTES_SETTING_MAX <= INFLATING_BYTES_MAX, 'the largest body finds room when it is alone');
assert(2 * INFLATION_WAIT_MS_MAX <= ANSWER_MS_MAX, 'a body that had to wait can still be stored in time');
assert(2 * PUBLISH_ATTEMPT_MS < ANSWER_MS_MAX, 'a publish is tried twice before the answer is due');
assert(PARTS_AGE_MS_MAX * 2 <= CHUNK_SWEEP_DELAY_MS, 'parts outlive every frame that may still name them');
assert(
  REGISTRY_REQUEST_MS + REGISTRY_STALL_MS + REGISTRY_RETRY_MS_MAX < 5_000,
  'one failed attempt still heals a mirror within five seconds of reconnecting',
);
assert(FRAMES_IN_FLIGHT_EAGER <= FRAMES_IN_FLIGHT_MAX, 'the eager bound lies within the bound');
assert(
  LARGE_ENTRIES_ACTIVE_MAX * PARTS_IN_FLIGHT_MAX * FRAME_BYTES_MAX <= STREAM_BYTES_IN_FLIGHT_MAX,
  'the parts in flight are bounded like a stream',
);
assert(
  BROKER_AWAY_MS_MAX + PUBLISH_PAUSE_MS < ANSWER_MS_MAX,
  'an absence is known as such before the answer is due',
);
assert(
  BROKER_AWAY_MS_MAX < CHECKPOINT_READ_MS_MAX &&
    CHECKPOINT_READ_MS_MAX + PUBLISH_ANSWER_MS_MIN < ANSWER_MS_MAX,
  'a checkpoint outwaits an absence, and what waited for it can still be stored in time',
);
assert(STREAM_BYTES_IN_FLIGHT_MAX < PUBLISH_BYTES_IN_FLIGHT_MAX, 'one full stream leaves room for others');
assert(SINK_FILE_MS_MIN < WORK_BEHIND_MS, 'frames of a batch that waits its second are not late');
assert(WORK_NAMED_EVERY_MS < WORK_REST_MS, 'a project that is named again has not begun again');
assert(SINK_BATCH_BYTES_MAX * 2 <= PREFETCH_BYTES_MAX, 'a batch is fetched while another is written');
assert(ACK_WAIT_MS * 2 < FRAME_MEMORY_MS, 'a redelivery meets what the sink knows');
assert(PARTS_AGE_MS_MAX <= RECEIVED_DISORDER_MS_MAX, 'the latest frame of a large entry is in order');
assert(POSTGRES_IDLE_MS_MAX < ACK_WAIT_MS, 'a stopped processor loses its locks before its frames');
assert(ACK_WAIT_MS < DEDUP_WINDOW_MS, 'a redelivery falls into the dedup window');
