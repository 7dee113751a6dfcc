import { describe, expect, it } from 'vitest';
import { isFrameStreamName, streamName, wantedStreams } from '../../src/stream/topology.ts';
import { MIB } from './broker.ts';

describe('the topology', () => {
  it('names a stream by its shard only when there are several', () => {
    expect(streamName('events', 0, 1)).toBe('SLUICE_EVENTS');
    expect(streamName('events', 1, 2)).toBe('SLUICE_EVENTS_1');
    expect(['SLUICE_EVENTS', 'SLUICE_LOGS_12'].every(isFrameStreamName)).toBe(true);
    expect(['SLUICE_CHUNKS', 'SLUICE_EVENTS_', 'XSLUICE_LOGS', 'KV_x'].some(isFrameStreamName)).toBe(false);
  });

  it('lets no stream forget in order to make room but that of the dead letters', () => {
    const wanted = wantedStreams({ replicas: 3, shards: 4, maxBytes: MIB });
    expect(wanted).toHaveLength(27);
    for (const { config } of wanted)
      expect(config.discard).toBe(config.name === 'SLUICE_DEAD_LETTERS' ? 'old' : 'new');
  });

  it('keeps the audit for a year, within the bound of every stream', () => {
    const audit = wantedStreams({ replicas: 1, shards: 1, maxBytes: MIB }).at(-1)?.config;
    const year = 365 * 24 * 3600e9;
    expect(audit).toMatchObject({ name: 'SLUICE_AUDIT', retention: 'limits', max_bytes: MIB, max_age: year });
  });
});
