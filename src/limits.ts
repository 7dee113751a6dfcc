/**
 * Bounds that more than one module uses, and the defaults of settings. A bound that only one module
 * uses may stay in that module.
 */
import { assert } from './lib/assert.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

// ---- A body ----
/** Most bytes of a body as sent; a longer body gets 413. Default of SLUICE_MAX_BODY_BYTES. */
export const BODY_BYTES_MAX = 5 * MIB;
/**
 * Most bytes of a body after decompression; a longer one gets 413. Default of
 * SLUICE_MAX_DECOMPRESSED_BYTES.
 */
export const DECOMPRESSED_BYTES_MAX = 20 * MIB;
/**
 * Largest value of SLUICE_MAX_BODY_BYTES and SLUICE_MAX_DECOMPRESSED_BYTES. A processor joins a
 * whole envelope in memory.
 */
export const BODY_BYTES_SETTING_MAX = 100 * MIB;
/** Bytes of an envelope's first line, without its newline. */
export const ENVELOPE_HEADER_BYTES_MAX = 16 * KIB;
/** Bytes of one item header line, without its newline. */
export const ITEM_HEADER_BYTES_MAX = 16 * KIB;
export const ITEMS_MAX = 1_000;
/**
 * Bytes of an envelope's item header lines together. They stay in memory even when the payloads are
 * written to disk.
 */
export const ITEM_HEADERS_BYTES_MAX = 256 * KIB;
/** Most brackets that may be open at once in a JSON body. No SDK nests a tenth as deep. */
export const JSON_DEPTH_MAX = 512;
/**
 * Most records in an OTLP request. Exporters send 512 at a time, a Collector 8,192. An empty record
 * takes only two bytes, so without this bound a small body could become millions of rows.
 */
export const OTLP_RECORDS_MAX = 20_000;
/**
 * Bound of the fields of an OTLP request that are outside its records: its resources, its OTLP
 * scopes, and their members. Even if each record has its own resource and scope, there are only
 * eight for each record.
 */
export const OTLP_PARTS_MAX = 10 * OTLP_RECORDS_MAX;
/**
 * Bytes of a body with reports of browsers, as sent and after decompression. The bound is low
 * because anybody can read the key in a web page and send such reports.
 */
export const REPORTS_BYTES_MAX = 64 * KIB;
/**
 * Payload bytes up to which an envelope stays in memory. A larger one is spooled: its payloads are
 * written to a temporary file.
 */
export const INLINE_BYTES_MAX = 128 * KIB;
/**
 * A worker that holds more bytes in memory than this (see HELD_BYTES_MAX) uses INLINE_BYTES_MIN
 * instead of INLINE_BYTES_MAX.
 */
export const HELD_BYTES_TIGHT = 64 * MIB;
export const INLINE_BYTES_MIN = 16 * KIB;
/**
 * Bytes that one worker holds in memory: bodies, header lines, inflaters, and blocks that wait for
 * the disk. While a worker holds more, new requests get 503.
 */
export const HELD_BYTES_MAX = 192 * MIB;
/**
 * While a worker holds more bytes than this, it ends an upload with 503 if the upload's project
 * holds more than its share.
 */
export const HELD_BYTES_SCARCE = 144 * MIB;
/** Default size of one worker's spool: 400 bodies of DECOMPRESSED_BYTES_MAX. */
export const SPOOL_BYTES_MAX = 8 * GIB;
/**
 * Most uploads of one worker that are spooled, or inflated in pieces while they arrive; a further
 * one gets 503.
 */
export const UPLOADS_MAX = 1_000;
/**
 * Bytes of uploads that have arrived whole and wait until the stream has them. Beyond this bound,
 * uploads that still arrive are paused. Uploads that UNPACED_BYTES_MAX bounds are not counted. A
 * stream that takes 20 MB/s stores this many bytes within ANSWER_MS_MAX.
 */
export const WHOLE_UPLOADS_BYTES_MAX = 32 * MIB;
/**
 * Spooled bytes of bodies that arrived whole and were inflated in the event loop. Such bodies
 * cannot be paused, so beyond this bound they get 503. A stream that takes 80 MB/s stores this many
 * bytes within ANSWER_MS_MAX.
 */
export const UNPACED_BYTES_MAX = 128 * MIB;
/**
 * Bytes of all uploads that wait for inflaters and the disk. Beyond this bound large uploads are
 * paused.
 */
export const QUEUED_BYTES_MAX = 16 * MIB;
/**
 * Paused uploads that resume in one turn of the event loop. The number is small, because each may
 * be whole after its next chunk, and WHOLE_UPLOADS_BYTES_MAX bounds whole uploads.
 */
export const UPLOADS_RESUMED_PER_TURN = 2;
/** Bytes of one upload that wait for the disk. Beyond this bound the upload's socket is paused. */
export const SPOOL_QUEUE_BYTES_MAX = 1 * MIB;
/** Replaces SPOOL_QUEUE_BYTES_MAX while the worker holds more than HELD_BYTES_TIGHT. */
export const SPOOL_QUEUE_BYTES_TIGHT = 128 * KIB;
/** Free spool blocks that a worker keeps for later uploads. */
export const SPOOL_BLOCKS_KEPT = 256;
/**
 * Bytes of one memory block in which payloads wait for the disk. One write stores all waiting
 * blocks of an upload.
 */
export const SPOOL_BLOCK_BYTES = 32 * KIB;
/**
 * Most compressed bytes of a body that is inflated synchronously, in the event loop, once it has
 * come whole.
 */
export const SYNC_INFLATE_BYTES_MAX = 64 * KIB;
/**
 * Inflated bytes up to which a body is inflated synchronously, which takes the event loop some 3
 * ms. A body that inflates to more waits in the InflationQueue for its turn, and zlib's threads
 * inflate it.
 */
export const SYNC_INFLATED_BYTES_MAX = 1 * MIB;
/**
 * Inflated bytes of all bodies in the InflationQueue, whether they wait or are at work. Beyond this
 * bound a body gets 503.
 */
export const INFLATING_BYTES_MAX = 128 * MIB;
/**
 * Inflated bytes of the bodies in the InflationQueue that are at work. A body is at work from its
 * first inflated byte until its envelope is stored. A body larger than this bound is at work alone.
 */
export const INFLATED_AT_ONCE_BYTES_MAX = 24 * MIB;
/**
 * How long a body waits in the InflationQueue before it gets 503. After the longest wait, half of
 * ANSWER_MS_MAX is left to store the body.
 */
export const INFLATION_WAIT_MS_MAX = 1_000;
/**
 * A compressed body swells when it inflates to more than this many times its size, and to more than
 * SYNC_INFLATED_BYTES_MAX. JSON seldom reaches 30 times its size.
 */
export const SWELLING_RATIO_MIN = 64;
/**
 * A project must rest for this long for each MiB that came out of its swelling bodies, if other
 * projects send too: its further swelling bodies get 503. Inflating, storing and processing 19 MiB
 * takes half a second of CPU. So the swelling bodies of one project take a twentieth of a core.
 */
export const SWOLLEN_REST_MS_PER_MIB = 500;
/**
 * MiB that may come out of a project's swelling bodies before the project must rest. The allowance
 * comes back at the pace of SWOLLEN_REST_MS_PER_MIB.
 */
export const SWOLLEN_FREE_MIB = 64;
/**
 * An upload's inflater starts when more compressed bytes than this have come. From then on, the
 * upload's socket is paused while more than this wait for the inflater.
 */
export const INFLATER_QUEUE_BYTES_MAX = 256 * KIB;
/** Replaces INFLATER_QUEUE_BYTES_MAX while the worker holds more than HELD_BYTES_TIGHT. */
export const INFLATER_QUEUE_BYTES_TIGHT = 64 * KIB;
/**
 * After its inflaters have put out this many bytes, a worker asks V8 to collect its young space.
 * Otherwise V8 of Node 24 would mark the whole heap, which takes far longer. With 16 MiB, V8 still
 * marked the whole heap in one of twelve cases (measured).
 */
export const OUTPUT_GARBAGE_BYTES_MAX = 8 * MIB;
/** Largest window of a zstd frame (RFC 8878 section 3.1.1.1.2 asks decoders for at least this). */
export const ZSTD_WINDOW_BYTES_MAX = 8 * MIB;
/**
 * Most frames of one zstd body. Each costs a trip to zlib's threads, some 20 µs of the event loop.
 */
export const ZSTD_FRAMES_MAX = 1_000;
/**
 * Most bytes of one field that filters read from a large payload. Brackets, names and numbers have
 * the smaller bound PICKED_STRUCTURE_BYTES_MAX, because JSON.parse takes 50 ms for a MiB of
 * brackets.
 */
export const PICKED_BYTES_MAX = 1 * MIB;
export const PICKED_STRUCTURE_BYTES_MAX = 256 * KIB;
export const PICKED_STRING_BYTES_MAX = 64 * KIB;
export const PICKED_DEPTH_MAX = 64;
/**
 * A chunk of a body up to this size is kept whole when any piece of it is needed. Of a larger
 * chunk, a small piece is copied instead.
 */
export const VIEWED_CHUNK_BYTES = 16 * KIB;
/** A body may come in this many pieces, plus one for each BODY_PIECE_BYTES_MIN of its bytes. */
export const BODY_PIECES_FREE = 1_000;
export const BODY_PIECE_BYTES_MIN = 64;

// ---- Time per request ----
/**
 * How long a body may take to arrive, pauses excluded. After this time the worker cuts the
 * connection.
 */
export const BODY_MS_MAX = 60_000;
/**
 * How long a body may be paused in all; after this time it gets 503. For comparison: 400 uploads of
 * 19 MiB at once took 43 s.
 */
export const BODY_PAUSED_MS_MAX = 120_000;
/**
 * Age from which a body's pace counts, pauses excluded. From then on the body must bring
 * BODY_RATE_BYTES_PER_SEC over each BODY_RATE_WINDOW_MS, or the worker cuts the connection.
 */
export const BODY_GRACE_MS = 10_000;
export const BODY_RATE_WINDOW_MS = 10_000;
export const BODY_RATE_BYTES_PER_SEC = 4_000;
/**
 * Age from which sluice restarts a body's time-out in uWebSockets.js again and again. The library
 * would cut a slow body after some 10 s; sluice's own bounds decide instead.
 */
export const BODY_REARM_MS = 4_000;
/**
 * Bytes of a refused body that are read and dropped. If the worker closed at once, the client would
 * see a reset instead of the answer.
 */
export const REFUSED_DRAIN_BYTES_MAX = 2 * BODY_BYTES_SETTING_MAX;
/**
 * A refused body may have this many times the pieces that an accepted body may have. Its pieces are
 * bounded because dropping a piece costs as much as reading it.
 */
export const REFUSED_DRAIN_PIECES_RATIO = 10;
/**
 * Time until an answer is due, from an envelope's last body byte or the start of a heartbeat's
 * publish. After this time the worker gives up. The answer is then 500 if something may have been
 * queued or the disk is the cause, else 503. The admission has time-outs of its own,
 * REDIS_REPLY_MS_MAX and CHECKPOINT_READ_MS_MAX.
 */
export const ANSWER_MS_MAX = 2_000;

// ---- A request ----
export const REQUEST_HEADER_BYTES_MAX = 16 * KIB;
/**
 * Most headers of a request. uWebSockets.js closes a connection without an answer when a request
 * has more than 99.
 */
export const REQUEST_HEADERS_MAX = 64;
export const URL_BYTES_MAX = 4 * KIB;
/**
 * With one in this many answers, a worker closes the connection. Otherwise clients that keep their
 * connections would never reach a worker that started later. nginx closes a connection after 1,000
 * requests by default.
 */
export const ANSWERS_PER_CLOSE = 1_000;
/** Most requests of one worker that are between their first byte and their answer. */
export const REQUESTS_IN_FLIGHT_MAX = 20_000;

// ---- Limiter ----
export const RATE_WINDOW_MS = 60_000;
export const RATE_BUCKET_MS = 250;
/** How long a request waits for a reply of Redis. After this time, Redis counts as away. */
export const REDIS_REPLY_MS_MAX = 700;
/**
 * Time-out of one attempt to connect to Redis. A worker that starts waits this long for Redis, then
 * starts without it.
 */
export const REDIS_CONNECT_MS_MAX = 1_000;
/**
 * How long a request waits for the checkpoint of its project's month when Redis has lost the count.
 * The time is longer than BROKER_AWAY_MS_MAX, so a broker's short absence refuses nobody.
 */
export const CHECKPOINT_READ_MS_MAX = 1_750;
/** Length of the lease of tokens for requests that already wait. */
export const LEASE_NEED_MS = 250;
/**
 * Replaces LEASE_NEED_MS while Redis replies slowly. A reply within REDIS_REPLY_MS_MAX then arrives
 * before its lease ends.
 */
export const LEASE_NEED_SLOW_MS = 750;
/** Length of the lease of reserve tokens, which no request waits for yet. */
export const LEASE_RESERVE_MS = 500;
/**
 * For limits up to this one, workers lease a reserve (tokens for requests to come) only while the
 * window is contended (CONTENDED_MS). So an uncontended window admits exactly as many requests as
 * the limit says before it refuses one. admit.lua has its own copies of this number and of
 * CONTENDED_MS.
 */
export const EXACT_LIMIT_MAX = 1_000;
/**
 * Most tokens that all workers together hold as reserves of a window, as a fraction of the window's
 * limit.
 */
export const RESERVE_SHARE_MAX = 0.005;
/**
 * Replaces RESERVE_SHARE_MAX while the window is contended. Workers then use the tokens that they
 * leased in advance at once, so they may hold more of them.
 */
export const CONTENDED_RESERVE_SHARE_MAX = 0.02;
/**
 * How long a window counts as contended after it was last full or scarce. A window is scarce when a
 * worker wants a reserve of more than half of the window's free tokens.
 */
export const CONTENDED_MS = 65_000;
/**
 * Pings that one heartbeat token may send in a second. The limiter uses the number in
 * `ingest/limit/heartbeat.lua`; a test checks that the two numbers are equal.
 */
export const HEARTBEATS_PER_SECOND = 5;
export const RATE_LIMIT_MIN = 1;
export const RATE_LIMIT_MAX = 100_000;
/** Seconds in the Retry-After header of a 429 for the limit of requests. */
export const RETRY_AFTER_SEC = 60;
/** Longest time until a changed count of a project is written to its checkpoint. */
export const CHECKPOINT_MS_MAX = 10_000;

/**
 * Most characters of the name and version of a client or SDK together. Both are stored with each
 * item.
 */
export const CLIENT_CHARS_MAX = 256;
/** Most characters of a User-Agent that is filled into each element of a container. */
export const AGENT_CHARS_MAX = 512;

// ---- Registry ----
/**
 * Time-out of one request to a bucket. It is short enough that a worker's copy of the bucket is up
 * to date within 5 s of a reconnect, even if one attempt fails.
 */
export const REGISTRY_REQUEST_MS = 1_500;
/** A read of a bucket that delivers nothing for this long is given up and started again. */
export const REGISTRY_STALL_MS = 2_000;
/**
 * Largest factor for REGISTRY_REQUEST_MS and REGISTRY_STALL_MS. The factor doubles with each
 * failure, so that retries do not make a busy broker busier.
 */
export const REGISTRY_TIMEOUT_FACTOR_MAX = 8;
/** Entries of a bucket that one turn of the event loop handles, in some 3 ms of CPU. */
export const REGISTRY_SLICE_ENTRIES = 500;
/**
 * How often a worker compares its copy of a bucket with the numbers that the broker reports about
 * the bucket. When they differ twice in a row, the worker opens a new watch on the bucket.
 */
export const REGISTRY_CHECK_MS = 1_000;
export const REGISTRY_RETRY_MS_MIN = 100;
export const REGISTRY_RETRY_MS_MAX = 1_000;
/**
 * How often a worker adds its counts of outcomes to the ledger: the records of outcomes in
 * JetStream (projects/usage/outcome-day.ts).
 */
export const LEDGER_FLUSH_MS = 5_000;
/** Most projects whose outcomes one flush adds to the ledger. */
export const LEDGER_WRITES_PER_FLUSH_MAX = 250;
/** Days of hourly outcomes that are kept for each project. */
export const OUTCOME_DAYS_KEPT = 32;
/** Most keys of one project. A request's key is compared with each of them. */
export const PROJECT_KEYS_MAX = 100;
export const LABEL_CHARS_MAX = 100;

// ---- Frames ----
/** Most entries of one frame. */
export const FRAME_ENTRIES_MAX = 256;
/**
 * Most time between the earliest and the latest deadline of the entries in one frame. The worker
 * tries to publish the frame only until its earliest deadline.
 */
export const FRAME_DEADLINES_APART_MS_MAX = 250;
/**
 * While a stream's shard has fewer frames in flight than this, queued entries leave at the end of
 * the event loop's turn. Otherwise they wait until a frame is acknowledged, or until they fill a
 * frame.
 */
export const FRAMES_IN_FLIGHT_EAGER = 4;
export const FRAMES_IN_FLIGHT_MAX = 32;
/**
 * Bytes that are queued for the broker or in flight. The first bound is for one shard of a stream,
 * PUBLISH_BYTES_IN_FLIGHT_MAX for all streams of a worker.
 */
export const STREAM_BYTES_IN_FLIGHT_MAX = 32 * MIB;
export const PUBLISH_BYTES_IN_FLIGHT_MAX = 96 * MIB;
export const PUBLISH_ENTRIES_IN_FLIGHT_MAX = 20_000;
/**
 * Bytes that wait on a connection to the broker. Beyond this bound no frame and no part is sent.
 * The bytes include second attempts, and entries that were meanwhile answered with 500.
 */
export const UNSENT_BYTES_MAX = PUBLISH_BYTES_IN_FLIGHT_MAX;
/**
 * Time-out of one publish attempt. Another attempt follows while the answer's deadline allows it.
 */
export const PUBLISH_ATTEMPT_MS = 800;
/**
 * Largest frame or part, even where the broker's max_payload allows more. It is half of the default
 * max_payload: a part that is read back in base64, a third larger, still fits a message. The small
 * size also lets a sink's batch hold several frames.
 */
export const FRAME_BYTES_MAX = 512 * KIB;
/**
 * Bytes of FRAME_BYTES_MAX, or of half the broker's max_payload, that are left free for NATS
 * headers and MessagePack framing.
 */
export const FRAME_OVERHEAD_BYTES = 4 * KIB;
/**
 * Pause before a worker publishes to a stream again after a refusal that passes by itself, for
 * example because the stream is electing a leader.
 */
export const PUBLISH_PAUSE_MS = 250;
/**
 * After a refusal, another attempt begins only if this much time is left until the answer is due.
 * An attempt that gets no reply would turn a certain 503 into a 500.
 */
export const PUBLISH_ANSWER_MS_MIN = 100;
/**
 * How long entries wait while the broker, or a stream's leader, is away. After this time, entries
 * that were never written to the connection are refused.
 */
export const BROKER_AWAY_MS_MAX = 1_500;
/**
 * Most large envelopes of one worker that write their parts at the same time; further ones wait.
 */
export const LARGE_ENTRIES_ACTIVE_MAX = 4;
/** Parts of one large envelope that are in flight together. */
export const PARTS_IN_FLIGHT_MAX = 4;
/**
 * Longest time from a large entry's first part to the acknowledgement of its frame. After a longer
 * time the entry does not count as stored, because its parts may have been deleted. Only a process
 * that stood still takes so long.
 */
export const PARTS_AGE_MS_MAX = 300_000;
export const CHUNK_SWEEP_DELAY_MS = 600_000;
export const CHUNK_SWEEP_EVERY_MS = 60_000;
export const DEDUP_WINDOW_MS = 120_000;
/** Most unacknowledged frames of one stream, over all processors. */
export const CONSUMER_ACK_PENDING_MAX = 10_000;

// ---- Work of a project (stream/work.ts) ----
/**
 * An entry with more estimated work than this is heavy: it is decoded in advance, while later
 * frames of its stream go on. The estimate for an envelope of 20 MiB without scrubbing is lower.
 */
export const HEAVY_ENTRY_MS = 250;
/**
 * Most that a heavy entry adds to its project's debt at a worker (stream/work.ts). The bound is
 * low, because other entries wait for a heavy one much less than its decoding takes.
 */
export const HEAVY_OWES_MS = 50;
/** Heavy entries that are decoded at the same time, each of a different project. */
export const HEAVY_DECODING_MAX = 2;
/**
 * Bytes of the heavy entries that are decoded and wait to be written. While a processor has this
 * many or more, it begins to decode no further heavy entry.
 */
export const HEAVY_DECODED_BYTES_MAX = 64 * MIB;
/**
 * A processor tells workers to refuse a project when a heavy frame of the project waits longer than
 * this for its turn, or when its waiting heavy frames have more than HEAVY_WAITING_BYTES_MAX
 * together.
 */
export const HEAVY_WAIT_MS_MAX = 10_000;
export const HEAVY_WAITING_BYTES_MAX = 4 * MIB;
/**
 * Most debt of a project at all workers of a machine together, in ms of a processor's time. So the
 * project delays the data of others by at most a second, beside the second that a batch takes.
 */
export const WORK_FREE_MS = 1_000;
/**
 * Most workers among which WORK_FREE_MS is divided. With more workers, each still allows a quarter
 * of WORK_FREE_MS, because a client may use a single connection, which leads to one worker.
 */
export const WORKERS_SHARING_FREE_MAX = 4;
/**
 * A processor is late when a frame that it handles is older than this. The bound exceeds
 * SINK_FILE_MS_MIN, because frames wait up to that long for the next batch to begin.
 */
export const WORK_BEHIND_MS = 1_500;
/** Fraction of a processor's time that one project may need while the processor is late. */
export const WORK_PART_MAX = 1 / 2;
/**
 * A late processor tells workers to refuse each project whose debt (stream/work.ts) is larger than
 * this. One unscrubbed envelope of 20 MiB makes less debt, and a project may send one at any
 * moment.
 */
export const WORK_HEAVY_MS = 500;
/**
 * The time that passes in a stream pays off a project's debt, divided by the number of streams to
 * which the project sends. A stream counts while it got something from the project within this
 * time.
 */
export const WORK_STREAM_MS = 10_000;
export const WORK_NAMED_EVERY_MS = 250;
/**
 * How long workers refuse a project after a processor has told them that the project's work delays
 * others (stream/work.ts).
 */
export const WORK_REST_MS = 1_000;
/**
 * Workers multiply a project's work by its price, which is normally 1. Each time that a processor
 * tells them to refuse the project, the price may double, up to WORK_PRICE_MAX. In this time the
 * price falls to half.
 */
export const WORK_PRICE_HALVED_MS = 30_000;
export const WORK_PRICE_MAX = 64;
/**
 * A processor tells workers to refuse a project only when it has seen another project within this
 * time. Otherwise there is nobody to protect.
 */
export const WORK_OTHERS_MS = 600_000;
/** When a processor keeps the debts of more projects than this, it removes those that are paid. */
export const DEBTS_SWEPT_MIN = 10_000;

// ---- Processor ----
export const RECORDING_BYTES_MAX = 64 * MIB;
/**
 * A recording draws on its project's inflation budget once it inflates to more than
 * INFLATION_FREE_BYTES and to more than INFLATION_FREE_RATIO times its size.
 */
export const INFLATION_FREE_BYTES = 1 * MIB;
export const INFLATION_FREE_RATIO = 16;
/**
 * Inflation budget of one project in one processor: the bytes of a full budget, and the bytes that
 * come back each second.
 */
export const INFLATION_BUDGET_BYTES = 64 * MIB;
export const INFLATION_BUDGET_BYTES_PER_SEC = 1 * MIB;
/**
 * Most bytes of a scrubbed item; a larger one is not stored. Text that replaces private data may be
 * longer than the data.
 */
export const SCRUBBED_BYTES_MAX = 2 * RECORDING_BYTES_MAX;
/** Bytes of a recording's first line, which gives its segment_id. */
export const RECORDING_HEADER_BYTES_MAX = 4 * KIB;
/**
 * How long the work on items may hold the processor's event loop at a time. There is one exception:
 * the end of scrubbing a large string, some 200 ms for 62 MiB, because JavaScript joins the pieces
 * of a string in one go.
 */
export const SLICE_MS_MAX = 5;
/** Items below this size are decoded without a pause. */
export const SLICED_BYTES_MIN = 64 * KIB;
export const SINK_BATCH_BYTES_MAX = 8 * MIB;
/**
 * Bytes of the memory block in which a batch's lines gather. When the block is nearly full, the
 * ndjson sink writes it to the batch's unfinished file, and the s3 sink compresses it.
 */
export const SINK_BLOCK_BYTES = 1 * MIB;
/** Least time from one batch to the next, unless the next is full. So files are few and large. */
export const SINK_FILE_MS_MIN = 1_000;
/**
 * Pause before a failed batch is tried again. Each further failure doubles the pause, up to
 * SINK_RETRY_MS_MAX.
 */
export const SINK_RETRY_MS_MIN = 100;
export const SINK_RETRY_MS_MAX = 5_000;
/**
 * A call of a sink that takes longer than this is logged, and the sink counts as failing until the
 * call ends.
 */
export const SINK_STALLED_MS = 5_000;
/** Most frames that one batch takes from the prefetched frames. */
export const SINK_BATCH_FRAMES_MAX = 1_000;
/**
 * Bytes of frames that are prefetched or in hand, for each shard of a stream. With many streams
 * each shard has less, since all share PREFETCH_TOTAL_BYTES_MAX.
 */
export const PREFETCH_BYTES_MAX = 16 * MIB;
export const PREFETCH_TOTAL_BYTES_MAX = 128 * MIB;
export const PREFETCH_FRAMES_MAX = 2 * SINK_BATCH_FRAMES_MAX;
/**
 * How long a pull waits at the broker for frames: at most this time, and at most half of the
 * consumer's ack wait.
 */
export const PULL_EXPIRES_MS = 5_000;
/**
 * Least time between two searches for lost messages: messages that a consumer still waits for
 * although the stream no longer has them.
 */
export const GONE_LOOK_MS = 20_000;
/** Pause before a missing stream or consumer is asked for again. */
export const PULL_RETRY_MS = 1_000;
/**
 * How long one server of the broker's cluster may lead more than half of the streams. After this
 * time some of its leaders must step down.
 */
export const LOPSIDED_MS_MAX = 300_000;
/** How often the processor checks that its streams and consumers exist. */
export const KEEP_LOOK_MS = 5_000;
/**
 * How often the processor checks whether Redis lost counts. After a loss it compares all counts
 * with the sink's tally.
 */
export const LOSS_LOOK_MS = 15_000;
/**
 * How often the counts are compared with the tally after a loss, before the last comparison.
 * Several comparisons are needed, because requests under way are missing in the tally, and a busy
 * project always has some. The last comparison waits until the streams have moved past everything
 * that they held at the comparison before it.
 */
export const LOSS_LOOKS_MIN = 4;
/**
 * How long the processor waits until the broker confirms an acknowledgement, a dead letter or a
 * count.
 */
export const BROKER_REPLY_MS_MAX = 5_000;
/**
 * The broker delivers a frame again when no processor acknowledged it for this long, for example
 * because a processor was killed.
 */
export const ACK_WAIT_MS = 10_000;
/**
 * From this delivery of a frame on, the frame is handled in a batch of its own, because it may have
 * crashed the process before.
 */
export const DELIVERIES_BEFORE_ALONE = 3;
/**
 * Most frames that a consumer may handle in one turn when each has a batch of its own
 * (DELIVERIES_BEFORE_ALONE). All other consumers of the process wait meanwhile.
 */
export const SUSPECTS_IN_TURN_MAX = 100;
/**
 * A frame whose crashes have this weight (see CRASH_WEIGHT) becomes a dead letter, and its items
 * are not decoded.
 */
export const FRAME_CRASHES_MAX = 3;
export const RESEND_WINDOW_MS = 600_000;
/**
 * How long a sink remembers a frame that it has stored, by a monotonic clock. No redelivery takes
 * as long.
 */
export const FRAME_MEMORY_MS = 600_000;
/**
 * How far the times of receipt in a stream may be out of order. A large envelope may be stored five
 * minutes after it was received, and later data before it.
 */
export const RECEIVED_DISORDER_MS_MAX = 300_000;
/**
 * The PostgreSQL server ends a transaction and its locks when the processor is silent for this
 * long.
 */
export const POSTGRES_IDLE_MS_MAX = 8_000;
/** Most requests of one processor to ClickHouse at the same time; others wait. */
export const CLICKHOUSE_CONNECTIONS_MAX = 10;
/**
 * Connections of one processor to PostgreSQL, which allows 100 by default. The twelve processors
 * that deploy/kubernetes allows take 72.
 */
export const POSTGRES_CONNECTIONS_MAX = 6;
/**
 * Time-out of one request to ClickHouse. A slower server counts as away, and the frames are tried
 * again.
 */
export const CLICKHOUSE_REQUEST_MS_MAX = 60_000;
/**
 * An object of the s3 sink is stored once its lines have this many bytes, or
 * S3_OBJECT_PACKED_BYTES_MAX after compression.
 */
export const S3_OBJECT_BYTES_MAX = 64 * MIB;
export const S3_OBJECT_PACKED_BYTES_MAX = 16 * MIB;
/**
 * An object of the s3 sink is stored once the items of this many frames wait for it. The bound is
 * below CONSUMER_ACK_PENDING_MAX, because none of these frames is acknowledged yet.
 */
export const S3_OBJECT_FRAMES_MAX = 2_500;
/**
 * Longest time that a record waits for its object of the s3 sink, in seconds. The sink's URL may
 * set another time.
 */
export const S3_OBJECT_SEC = 60;
/** Size of the parts in which a large object is stored. S3 accepts no part below 5 MiB. */
export const S3_PART_BYTES = 8 * MIB;
export const S3_REQUEST_MS_MAX = 60_000;
/**
 * The s3 sink writes an hour's manifest once it has stored data that was received this long after
 * the hour's end. The time is twice RECEIVED_DISORDER_MS_MAX.
 */
export const MANIFEST_DELAY_MS = 600_000;
/**
 * Index files of the ndjson sink that are no longer needed are removed once there are this many.
 */
export const INDEX_PRUNE_COUNT = 64;
/** Number of months that the tally keeps: the newest ones. */
export const TALLY_MONTHS_MAX = 3;
/** Time-out for writing the parts of one large dead letter that is replayed. */
export const REPLAY_MS_MAX = 60_000;
export const DEAD_LETTER_AGE_MS = 30 * 24 * 3_600_000;
export const AUDIT_AGE_MS = 365 * 24 * 3_600_000;
export const STREAM_BYTES_DEFAULT = 10 * GIB;
export const STREAM_BYTES_DEV = 256 * MIB;

// ---- The page of the admin port ----
/** Projects whose counts one worker keeps for the page, some 200 bytes each. */
export const PROJECTS_WATCHED_MAX = 2_000;
export const PROJECTS_SHOWN_MAX = 20;

// ---- Processes ----
/**
 * A worker that is silent for this long is killed. Otherwise the kernel would go on to give it
 * connections.
 */
export const WORKER_SILENT_MS_MAX = 5_000;
/**
 * How long a stopping worker reports that it is not ready but still serves, so that a load balancer
 * stops choosing it before it closes.
 */
export const SHUTDOWN_PAUSE_MS = 1_000;
/** How long idle connections stay open after the listener closed and the last answer left. */
export const SHUTDOWN_LINGER_MS = 2_000;
/**
 * Longest time that a stopping worker takes from closing its listener to its exit, even with work
 * under way. For a processor, the time starts at the signal.
 */
export const SHUTDOWN_MS_MAX = 25_000;
/** How long a stopping processor goes on storing the frames that it has in hand. */
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
