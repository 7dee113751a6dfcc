-- The tables of version 2 of the schema, as the program made them whose rows ClickHouse read by itself.
CREATE TABLE IF NOT EXISTS sluice.migrations (
  version UInt32, applied_at DateTime DEFAULT now()
) ENGINE = ReplacingMergeTree ORDER BY version;
CREATE TABLE IF NOT EXISTS sluice.events (
  project_id String,
  day Date,
  row_key FixedString(16),
  event_id String,
  item_index UInt32,
  received_at DateTime64(3, 'UTC'),
  sent_at Nullable(DateTime64(3, 'UTC')),
  sdk LowCardinality(Nullable(String)),
  item_header String CODEC(ZSTD(1)),
  payload String CODEC(ZSTD(1)),
  timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'timestamp') > 0 AND JSONExtractFloat(payload, 'timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'timestamp') * 1000000), 'UTC'), NULL)), toDateTime64(received_at, 6, 'UTC')),
  level LowCardinality(String) DEFAULT leftUTF8(if(JSONExtractString(payload, 'level') != '', JSONExtractString(payload, 'level'), 'error'), 200),
  environment LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'environment'), 200),
  release LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'release'), 200),
  platform LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'platform'), 200),
  trace_id String DEFAULT JSONExtractString(payload, 'contexts', 'trace', 'trace_id'),
  user_id String DEFAULT trim(BOTH '"' FROM JSONExtractRaw(payload, 'user', 'id')),
  transaction String DEFAULT JSONExtractString(payload, 'transaction'),
  message String DEFAULT if(JSONExtractString(payload, 'logentry', 'formatted') != '', JSONExtractString(payload, 'logentry', 'formatted'), if(JSONExtractString(payload, 'logentry', 'message') != '', JSONExtractString(payload, 'logentry', 'message'), JSONExtractString(payload, 'message'))),
  exception_type LowCardinality(String) DEFAULT leftUTF8(if(JSONExtractString(payload, 'exception', 'values', -1, 'type') != '', JSONExtractString(payload, 'exception', 'values', -1, 'type'), JSONExtractString(payload, 'exception', -1, 'type')), 200),
  exception_value String DEFAULT if(JSONExtractString(payload, 'exception', 'values', -1, 'value') != '', JSONExtractString(payload, 'exception', 'values', -1, 'value'), JSONExtractString(payload, 'exception', -1, 'value')),
  INDEX by_event_id event_id TYPE bloom_filter(0.01) GRANULARITY 4,
  INDEX by_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (project_id, day, received_at)
ORDER BY (project_id, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.transactions (
  project_id String,
  day Date,
  row_key FixedString(16),
  event_id String,
  item_index UInt32,
  received_at DateTime64(3, 'UTC'),
  sent_at Nullable(DateTime64(3, 'UTC')),
  sdk LowCardinality(Nullable(String)),
  item_header String CODEC(ZSTD(1)),
  payload String CODEC(ZSTD(1)),
  timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'timestamp') > 0 AND JSONExtractFloat(payload, 'timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'timestamp') * 1000000), 'UTC'), NULL)), toDateTime64(received_at, 6, 'UTC')),
  start_timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'start_timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'start_timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'start_timestamp') > 0 AND JSONExtractFloat(payload, 'start_timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'start_timestamp') * 1000000), 'UTC'), NULL)), timestamp),
  duration_ms Float64 DEFAULT (toUnixTimestamp64Micro(timestamp) - toUnixTimestamp64Micro(start_timestamp)) / 1000,
  name String DEFAULT JSONExtractString(payload, 'transaction'),
  op LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'contexts', 'trace', 'op'), 200),
  status LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'contexts', 'trace', 'status'), 200),
  span_id String DEFAULT JSONExtractString(payload, 'contexts', 'trace', 'span_id'),
  environment LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'environment'), 200),
  release LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'release'), 200),
  platform LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'platform'), 200),
  trace_id String DEFAULT JSONExtractString(payload, 'contexts', 'trace', 'trace_id'),
  user_id String DEFAULT trim(BOTH '"' FROM JSONExtractRaw(payload, 'user', 'id')),
  INDEX by_event_id event_id TYPE bloom_filter(0.01) GRANULARITY 4,
  INDEX by_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (project_id, day, received_at)
ORDER BY (project_id, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.spans (
  project_id String,
  day Date,
  row_key FixedString(16),
  event_id String,
  item_index UInt32,
  received_at DateTime64(3, 'UTC'),
  sent_at Nullable(DateTime64(3, 'UTC')),
  sdk LowCardinality(Nullable(String)),
  item_header String CODEC(ZSTD(1)),
  span_index Nullable(UInt16),
  container Nullable(String) CODEC(ZSTD(1)),
  payload String CODEC(ZSTD(1)),
  timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'end_timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'end_timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'end_timestamp') > 0 AND JSONExtractFloat(payload, 'end_timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'end_timestamp') * 1000000), 'UTC'), NULL)), toDateTime64(received_at, 6, 'UTC')),
  start_timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'start_timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'start_timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'start_timestamp') > 0 AND JSONExtractFloat(payload, 'start_timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'start_timestamp') * 1000000), 'UTC'), NULL)), timestamp),
  duration_ms Float64 DEFAULT (toUnixTimestamp64Micro(timestamp) - toUnixTimestamp64Micro(start_timestamp)) / 1000,
  name String DEFAULT if(JSONExtractString(payload, 'name') != '', JSONExtractString(payload, 'name'), JSONExtractString(payload, 'description')),
  op LowCardinality(String) DEFAULT leftUTF8(if(JSONExtractString(payload, 'attributes', 'sentry.op', 'value') != '', JSONExtractString(payload, 'attributes', 'sentry.op', 'value'), JSONExtractString(payload, 'op')), 200),
  status LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'status'), 200),
  trace_id String DEFAULT JSONExtractString(payload, 'trace_id'),
  span_id String DEFAULT JSONExtractString(payload, 'span_id'),
  parent_span_id String DEFAULT JSONExtractString(payload, 'parent_span_id'),
  is_segment Bool DEFAULT JSONExtractBool(payload, 'is_segment'),
  environment LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'attributes', 'sentry.environment', 'value'), 200),
  release LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'attributes', 'sentry.release', 'value'), 200),
  user_id String DEFAULT JSONExtractString(payload, 'attributes', 'user.id', 'value'),
  INDEX by_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (project_id, day, received_at)
ORDER BY (project_id, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.logs (
  project_id String,
  day Date,
  row_key FixedString(16),
  event_id String,
  item_index UInt32,
  received_at DateTime64(3, 'UTC'),
  sent_at Nullable(DateTime64(3, 'UTC')),
  sdk LowCardinality(Nullable(String)),
  item_header String CODEC(ZSTD(1)),
  log_index Nullable(UInt16),
  container Nullable(String) CODEC(ZSTD(1)),
  payload String CODEC(ZSTD(1)),
  timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'timestamp') > 0 AND JSONExtractFloat(payload, 'timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'timestamp') * 1000000), 'UTC'), NULL)), toDateTime64(received_at, 6, 'UTC')),
  level LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'level'), 200),
  body String DEFAULT JSONExtractString(payload, 'body'),
  trace_id String DEFAULT JSONExtractString(payload, 'trace_id'),
  environment LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'attributes', 'sentry.environment', 'value'), 200),
  release LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'attributes', 'sentry.release', 'value'), 200),
  user_id String DEFAULT JSONExtractString(payload, 'attributes', 'user.id', 'value'),
  INDEX by_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (project_id, day, received_at)
ORDER BY (project_id, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.replays (
  project_id String,
  day Date,
  row_key FixedString(16),
  event_id String,
  item_index UInt32,
  received_at DateTime64(3, 'UTC'),
  sent_at Nullable(DateTime64(3, 'UTC')),
  sdk LowCardinality(Nullable(String)),
  item_header String CODEC(ZSTD(1)),
  type LowCardinality(String),
  payload String CODEC(ZSTD(1)),
  payload_base64 Nullable(String) CODEC(ZSTD(1)),
  payload_encoding LowCardinality(Nullable(String)),
  timestamp DateTime64(6, 'UTC') DEFAULT ifNull(if(JSONType(payload, 'timestamp') = 'String',
    parseDateTime64BestEffortOrNull(JSONExtractString(payload, 'timestamp'), 6, 'UTC'),
    if(JSONExtractFloat(payload, 'timestamp') > 0 AND JSONExtractFloat(payload, 'timestamp') < 10000000000,
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(payload, 'timestamp') * 1000000), 'UTC'), NULL)), toDateTime64(received_at, 6, 'UTC')),
  replay_id String DEFAULT if(JSONExtractString(payload, 'replay_id') != '', JSONExtractString(payload, 'replay_id'), event_id),
  segment_id UInt32 DEFAULT toUInt32(JSONExtractUInt(payload, 'segment_id')),
  environment LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'environment'), 200),
  release LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'release'), 200),
  platform LowCardinality(String) DEFAULT leftUTF8(JSONExtractString(payload, 'platform'), 200),
  user_id String DEFAULT trim(BOTH '"' FROM JSONExtractRaw(payload, 'user', 'id')),
  INDEX by_replay_id replay_id TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (project_id, day, received_at)
ORDER BY (project_id, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.extras (
  project_id String,
  day Date,
  row_key FixedString(16),
  event_id String,
  item_index UInt32,
  received_at DateTime64(3, 'UTC'),
  sent_at Nullable(DateTime64(3, 'UTC')),
  sdk LowCardinality(Nullable(String)),
  item_header String CODEC(ZSTD(1)),
  type LowCardinality(String),
  payload String CODEC(ZSTD(1)),
  payload_base64 Nullable(String) CODEC(ZSTD(1)),
  INDEX by_event_id event_id TYPE bloom_filter(0.01) GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (project_id, day, received_at)
ORDER BY (project_id, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.heartbeats (
  token String,
  day Date,
  row_key FixedString(16),
  received_at DateTime64(3, 'UTC'),
  body Nullable(String) CODEC(ZSTD(1)),
  body_base64 Nullable(String)
) ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (token, day, received_at)
ORDER BY (token, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.usage (
  project_id String,
  month LowCardinality(String),
  row_key FixedString(16),
  position UInt64,
  counted_at DateTime DEFAULT now()
) ENGINE = ReplacingMergeTree PARTITION BY month ORDER BY (project_id, month, row_key)
TTL counted_at + INTERVAL 4 MONTH SETTINGS ttl_only_drop_parts = 1;
CREATE TABLE IF NOT EXISTS sluice.seen_items (
  key FixedString(16),
  row_key FixedString(16),
  received_at DateTime64(3, 'UTC'),
  seen_at DateTime DEFAULT now()
) ENGINE = MergeTree PARTITION BY toStartOfHour(seen_at) ORDER BY key
TTL seen_at + INTERVAL 2 HOUR SETTINGS index_granularity = 256, ttl_only_drop_parts = 1;
INSERT INTO sluice.migrations (version) VALUES (1);
ALTER TABLE sluice.replays ADD COLUMN IF NOT EXISTS payload_base64 Nullable(String) CODEC(ZSTD(1)),
  ADD COLUMN IF NOT EXISTS payload_encoding LowCardinality(Nullable(String));
INSERT INTO sluice.migrations (version) VALUES (2);
