/** Everything that can go wrong, in the order in which a run goes through it. */
import {
  BROKER_DISK_FULL,
  BROKER_FROZEN,
  BROKER_FROZEN_LONG,
  BROKER_KILLED,
  CONSUMER_DELETED,
  LEADER_FROZEN,
  LEADER_FROZEN_LONG,
  LEADER_ISOLATED,
  LEADER_KILLED,
  QUORUM_LOST,
  STREAM_DELETED,
  STREAM_FULL,
} from './broker-faults.ts';
import { cutConnections, type Fault, nothing, weather } from './fault.ts';
import { PROCESS_FAULTS } from './process-faults.ts';
import {
  REDIS_CLOCK_BACK,
  REDIS_CLOCK_FORWARD,
  REDIS_DISK_FULL,
  REDIS_EMPTY,
  REDIS_FROZEN,
  REDIS_KILLED,
} from './redis-faults.ts';

const MINUTE_MS = 60_000;

const diskFull = (name: string, disk: 'sink' | 'spool', holdMs: number): Fault => ({
  name,
  holdMs,
  needs: disk === 'sink' ? 'sink disk' : 'disks',
  strike: async ({ stand: { backing } }) => {
    backing.disk(disk).fill();
    return async () => {
      backing.disk(disk).free();
      if (disk === 'sink') await backing.store?.revive();
    };
  },
});

const sinkAway = (name: string, how: 'stop' | 'kill', holdMs: number): Fault => ({
  name,
  holdMs,
  needs: 'store',
  strike: async ({ stand: { backing } }) => {
    const { store } = backing;
    await (how === 'stop' ? store?.stop() : store?.server.kill());
    return async () => store?.server.restart();
  },
});

const SINK_LOCKED: Fault = {
  name: 'sink: its tables locked for 8 s',
  holdMs: 8_000,
  needs: 'lock',
  strike: async ({ stand: { backing } }) => (await backing.store?.lock?.()) ?? nothing,
};

export const SINK_RESET = cutConnections('sink: reset five times', 'sink');

const SINK_FAULTS: readonly Fault[] = [
  weather('sink: 300 ms late, 400 kB/s', 'sink', { latencyMs: 300, bytesPerSec: 400_000, holdMs: 6_000 }),
  weather('sink: nothing passes for 8 s', 'sink', { blackhole: true, holdMs: 8_000 }),
  SINK_RESET,
  sinkAway('sink: kill -9 of its server, started 2 s later', 'kill', 2_000),
  sinkAway('sink: its server stopped for a minute', 'stop', MINUTE_MS),
  SINK_LOCKED,
  diskFull("sink's disk full for 6 s", 'sink', 6_000),
  diskFull("sink's disk full for a minute", 'sink', MINUTE_MS),
];

const NETWORK_FAULTS: readonly Fault[] = [
  weather('way to Redis: 100 ms late', 'redis', { latencyMs: 50, holdMs: 3_000 }),
  weather('way to Redis: 600 ms late', 'redis', { latencyMs: 300, holdMs: 3_000 }),
  weather('way to Redis: 20 kB/s', 'redis', { bytesPerSec: 20_000, holdMs: 4_000 }),
  weather('way to Redis: nothing passes for 4 s', 'redis', { blackhole: true, holdMs: 4_000 }),
  weather('way to Redis: slivers of 3 bytes', 'redis', { sliceBytes: 3, holdMs: 3_000 }),
  cutConnections('way to Redis: reset five times', 'redis'),
  weather('way to NATS: 200 ms late', 'nats', { latencyMs: 100, holdMs: 3_000 }),
  weather('way to NATS: 50 kB/s', 'nats', { bytesPerSec: 50_000, holdMs: 5_000 }),
  weather('way to NATS: nothing passes for 6 s', 'nats', { blackhole: true, holdMs: 6_000 }),
  weather('way to NATS: slivers of 7 bytes', 'nats', { sliceBytes: 7, holdMs: 3_000 }),
  cutConnections('way to NATS: reset five times', 'nats'),
  weather('processors to NATS: 200 ms late, 50 kB/s', 'processor to nats', {
    latencyMs: 100,
    bytesPerSec: 50_000,
    holdMs: 5_000,
  }),
  weather('processors to NATS: nothing passes for 8 s', 'processor to nats', {
    blackhole: true,
    holdMs: 8_000,
  }),
  cutConnections('processors to NATS: reset five times', 'processor to nats'),
];

export const FAULTS: readonly Fault[] = [
  BROKER_FROZEN,
  BROKER_FROZEN_LONG,
  BROKER_KILLED,
  STREAM_FULL,
  LEADER_KILLED,
  LEADER_FROZEN,
  LEADER_FROZEN_LONG,
  LEADER_ISOLATED,
  QUORUM_LOST,
  CONSUMER_DELETED,
  STREAM_DELETED,
  ...PROCESS_FAULTS,
  BROKER_DISK_FULL,
  REDIS_DISK_FULL,
  diskFull("spool's disk full for 4 s", 'spool', 4_000),
  REDIS_FROZEN,
  REDIS_KILLED,
  REDIS_EMPTY,
  REDIS_CLOCK_FORWARD,
  REDIS_CLOCK_BACK,
  ...NETWORK_FAULTS,
  ...SINK_FAULTS,
];
