import { describeFullDisk } from '../full-disk.ts';
import { ClickHouseUnderTest, S3UnderTest } from './under-test.ts';

describeFullDisk('clickhouse', { megabytes: 192, start: (on) => ClickHouseUnderTest.start(on) });
describeFullDisk('s3', { megabytes: 320, start: (on) => S3UnderTest.start('seconds=1', on) });
