/** What `sluice load --verify` reads of a sink, by a reader of that kind of sink. */
import { type SinkSetting, sinksIn } from '../../config.ts';
import { readNdjsonStored } from '../../sink/ndjson/stored.ts';
import { readPostgresStored } from '../../sink/postgres/stored.ts';
import type { StoredReader } from '../../sink/sink.ts';
import { SinkSettingError } from '../../sink/unavailable.ts';
import { UsageError } from '../session.ts';
import { readClickHouseStored } from './clickhouse.ts';
import { readS3Stored } from './s3.ts';

function readerOf(sink: SinkSetting): StoredReader {
  if (sink.kind === 'ndjson') return readNdjsonStored(sink.dir);
  if (sink.kind === 'postgres') return readPostgresStored(sink.url);
  if (sink.kind === 'clickhouse') return readClickHouseStored(sink.url);
  return readS3Stored(sink);
}

/**
 * Opens a sink for reading.
 * @param text as in SLUICE_SINK
 * @throws UsageError
 */
export function openStored(text: string | undefined): StoredReader {
  if (text === undefined)
    throw new UsageError('--verify: --sink or SLUICE_SINK must say where the processor stores.');
  const [sink, ...others] = sinksIn(text) ?? [];
  if (!sink) throw new UsageError('--sink: ndjson:<folder>, or a postgres://, clickhouse:// or s3:// URL.');
  if (others.length > 0)
    throw new UsageError('--sink: name one of the sinks; the items are looked up there.');
  try {
    return readerOf(sink);
  } catch (error) {
    if (!(error instanceof SinkSettingError)) throw error;
    throw new UsageError(error.message.replace('SLUICE_SINK', '--sink'), { cause: error });
  }
}
