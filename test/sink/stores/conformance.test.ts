import { HAS_ZSTD } from '../../../src/sink/s3/address.ts';
import { describeSinks } from '../conformance.ts';
import { PostgresUnderTest, SeveralUnderTest, type StartSink } from '../sinks.ts';
import { ClickHouseUnderTest, S3UnderTest } from './under-test.ts';

/** Where this runtime has it. */
const zstd: [string, StartSink][] = HAS_ZSTD
  ? [['s3, with zstd', () => S3UnderTest.start('compression=zstd')]]
  : [];

describeSinks([
  ['postgres', () => PostgresUnderTest.start()],
  ...zstd,
  ['clickhouse', () => ClickHouseUnderTest.start()],
  ['s3', () => S3UnderTest.start()],
  ['s3, without compression', () => S3UnderTest.start('compression=none')],
  [
    'clickhouse and s3 at once',
    async () => new SeveralUnderTest(await ClickHouseUnderTest.start(), await S3UnderTest.start()),
  ],
  [
    'postgres and clickhouse at once',
    async () => new SeveralUnderTest(await PostgresUnderTest.start(), await ClickHouseUnderTest.start()),
  ],
]);
