import { describeSinks } from '../sink/conformance.ts';
import { PostgresUnderTest, SeveralUnderTest } from '../sink/sinks.ts';
import { ClickHouseUnderTest } from './under-test.ts';

describeSinks([
  ['clickhouse', () => ClickHouseUnderTest.start()],
  [
    'postgres and clickhouse at once',
    async () => new SeveralUnderTest(await PostgresUnderTest.start(), await ClickHouseUnderTest.start()),
  ],
]);
