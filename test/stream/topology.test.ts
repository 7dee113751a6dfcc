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

  it('lets no stream forget in order to make room but those of the dead letters and the audit', () => {
    const wanted = wantedStreams({ replicas: 3, shards: 4, maxBytes: MIB });
    expect(wanted).toHaveLength(27);
    for (const { config } of wanted)
      expect(config.discard).toBe(/_(DEAD_LETTERS|AUDIT)$/.test(config.name) ? 'old' : 'new');
  });

  it('keeps the audit for a year and within 256 MiB, or less where streams are smaller', () => {
    const audit = (maxBytes: number) => wantedStreams({ replicas: 1, shards: 1, maxBytes }).at(-1)?.config;
    const year = 365 * 24 * 3600e9;
    expect(audit(2e9)).toMatchObject({ name: 'SLUICE_AUDIT', max_bytes: 256 * MIB, max_age: year });
    expect(audit(MIB)).toMatchObject({ max_bytes: MIB, retention: 'limits' });
  });
});
