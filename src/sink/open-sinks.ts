import type { SinkSetting } from '../config.ts';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { FRAME_MEMORY_MS } from '../limits.ts';
import { type NamedSink, SeveralSinks } from './several.ts';
import type { Sink } from './sink.ts';
import { SinkSettingError } from './unavailable.ts';

/** `retentionDays`: how long stores that remove old rows by themselves keep a row. */
type SinkOptions = { clock: Clock; log: Log; retentionDays?: number | undefined };

/** Returns the name of a sink in logs, errors and readiness. The name has no password. */
function sinkName(setting: SinkSetting): string {
  if (setting.kind === 'ndjson') return `ndjson:${setting.dir}`;
  const { protocol, host, pathname } = new URL(setting.url);
  return `${protocol}//${host}${pathname}`;
}

/** Opens a sink. Only the code of its kind is loaded, so that the processor starts fast. */
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
      return ClickHouseSink.connect(setting.url, options);
    }
    case 'postgres': {
      const { PostgresSink } = await import('./postgres/postgres.ts');
      return PostgresSink.connect(setting.url, options);
    }
  }
}

/**
 * Refuses an ndjson sink together with an s3 sink that holds frames for more than half of
 * FRAME_MEMORY_MS. When the processor dies, the frames that s3 held are delivered again, and the
 * ndjson sink knows a stored frame only for FRAME_MEMORY_MS.
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
 * Opens the sinks that the settings name, and makes one sink of them.
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
