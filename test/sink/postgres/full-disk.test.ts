import { describeFullDisk } from '../full-disk.ts';
import { PostgresUnderTest } from '../sinks.ts';

describeFullDisk('postgres', {
  megabytes: 192,
  start: (on) => PostgresUnderTest.start({ on }),
  // It ends where it cannot write its log.
  async revive(sink) {
    const { server } = sink as PostgresUnderTest;
    if (await server.query('SELECT 1').then(Boolean, () => false)) return;
    await server.stop();
    await server.restart();
  },
});
