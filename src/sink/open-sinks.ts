import type { SinkSetting } from '../config.ts';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { FRAME_MEMORY_MS } from '../limits.ts';
import type { ClickHouseOptions } from './clickhouse/clickhouse.ts';
import { type NamedSink, SeveralSinks } from './several.ts';
import type { Sink } from './sink.ts';
import { SinkSettingError } from './unavailable.ts';

/** `retentionDays`: for stores that remove what is older by themselves. */
type SinkOptions = { clock: Clock; log: Log; retentionDays?: number | undefined };

/** How logs, errors and readiness call a sink: without a password. */
function sinkName(setting: SinkSetting): string {
  if (setting.kind === 'ndjson') return `ndjson:${setting.dir}`;
  const { protocol, host, pathname } = new URL(setting.url);
  return `${protocol}//${host}${pathname}`;
}

/** ClickHouse counts from a day's first moment; the setting counts from its last one. */
const wholeDays = ({ log, retentionDays: days }: SinkOptions): ClickHouseOptions => ({
  log,
  ...(days !== undefined && { retentionDays: days + 1 }),
});

/** Only the kind that is wanted is loaded, so that the processor starts fast. */
async function openSink(setting: SinkSetting, options: SinkOptions): Promise<Sink> {
  switch (setting.kind) {
    case 'ndjson': {
      const { NdjsonSink } = await import('./ndjson/ndjson.ts');
      return NdjsonSink.lock(setting.dir, options);
    }
    case 's3': {
      const { S3Sink } = await import('./s3/s3.ts');
      return S3Sink.connect(setting, options);
    }
    case 'clickhouse': {
      const { ClickHouseSink } = await import('./clickhouse/clickhouse.ts');
      return ClickHouseSink.connect(setting.url, wholeDays(options));
    }
    case 'postgres': {
      const { PostgresSink } = await import('./postgres/postgres.ts');
      return PostgresSink.connect(setting.url, options);
    }
  }
}

/**
 * A frame that one sink holds comes again when its processor dies, and the ndjson sink knows it for
 * FRAME_MEMORY_MS.
 * @throws SinkSettingError
 */
async function checkS3BesideNdjson(settings: readonly SinkSetting[]): Promise<void> {
  if (!settings.some(({ kind }) => kind === 'ndjson')) return;
  const held = settings.filter((setting) => setting.kind === 's3');
  if (held.length === 0) return;
  const { parseAddress } = await import('./s3/address.ts');
  if (held.some((setting) => 2 * parseAddress(setting).objectMs > FRAME_MEMORY_MS))
    throw new SinkSettingError(
      `SLUICE_SINK: beside ndjson, seconds of s3:// is at most ${FRAME_MEMORY_MS / 2_000}`,
    );
}

/**
 * The sinks that the settings name, as one.
 * @throws SinkSettingError, FolderTakenError, JournalError
 */
export async function openSinks(
  settings: readonly SinkSetting[],
  options: SinkOptions,
): Promise<SeveralSinks> {
  await checkS3BesideNdjson(settings);
  const opened: NamedSink[] = [];
  try {
    for (const setting of settings) {
      const name = sinkName(setting);
      const log = options.log.child({ sink: name });
      opened.push({ name, sink: await openSink(setting, { ...options, log }) });
    }
  } catch (error) {
    await Promise.all(opened.map(({ sink }) => sink.close()));
    throw error;
  }
  return new SeveralSinks(opened, options);
}
