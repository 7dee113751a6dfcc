/** Readers for `sluice load --verify`, one for each kind of sink. */
import { type SinkSetting, sinksIn } from '../../config.ts';
import type { StoredReader } from '../../sink/sink.ts';
import { SinkSettingError } from '../../sink/unavailable.ts';
import { UsageError } from '../command-error.ts';

/** Loads only the reader of the wanted kind of sink, so that the command starts fast. */
async function readerOf(sink: SinkSetting): Promise<StoredReader> {
  switch (sink.kind) {
    case 'ndjson':
      return (await import('../../sink/ndjson/stored.ts')).readNdjsonStored(sink.dir);
    case 'postgres':
      return (await import('../../sink/postgres/stored.ts')).readPostgresStored(sink.url);
    case 'clickhouse':
      return (await import('./clickhouse.ts')).readClickHouseStored(sink.url);
    case 's3':
      return (await import('./s3.ts')).readS3Stored(sink);
  }
}

/**
 * Opens a sink for reading.
 * @param text as in SLUICE_SINK
 * @throws UsageError
 */
export async function openStored(text: string | undefined): Promise<StoredReader> {
  if (text === undefined)
    throw new UsageError('--verify: --sink or SLUICE_SINK must say where the processor stores.');
  const [sink, ...others] = sinksIn(text) ?? [];
  if (!sink) throw new UsageError('--sink: ndjson:<folder>, or a postgres://, clickhouse:// or s3:// URL.');
  if (others.length > 0)
    throw new UsageError('--sink: name one of the sinks; the items are looked up there.');
  try {
    return await readerOf(sink);
  } catch (error) {
    if (!(error instanceof SinkSettingError)) throw error;
    throw new UsageError(error.message.replace('SLUICE_SINK', '--sink'), { cause: error });
  }
}
