import { afterEach, expect, it } from 'vitest';
import { exposeMetrics } from '../../../../src/ingest/http/metrics/exposition.ts';
import { RequestMetrics } from '../../../../src/ingest/http/metrics/request-metrics.ts';
import { LimitRedis } from '../../../../src/ingest/limit/redis.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { createLog } from '../../../../src/lib/log.ts';
import { Slotted } from '../../../../src/lib/slots.ts';
import { NatsLink } from '../../../../src/stream/nats.ts';
import { Publisher } from '../../../../src/stream/publish/publisher.ts';
import { Broker, MIB } from '../../../stream/broker.ts';
import { TcpProxy } from '../../../support/tcp-proxy.ts';
import { testBudget } from '../../envelope/bodies.ts';

let broker: Broker;
afterEach(() => broker?.close());

it('tells which connection to NATS is away: without that for parts only large envelopes are refused', async () => {
  broker = await Broker.start();
  const proxy = await TcpProxy.start(broker.server.port);
  const log = createLog('silent');
  const urls = [`nats://127.0.0.1:${proxy.port}`];
  const partsLink = await NatsLink.connect({ urls, name: 'parts', log });
  const publisher = new Publisher({ link: broker.link, partsLink, shards: 1, clock: systemClock, log });
  const redis = new LimitRedis({ urls: ['redis://127.0.0.1:1'], log, clock: systemClock });
  const told = (): unknown => {
    const requests = new RequestMetrics();
    const figures = {
      requests,
      inFlight: 0,
      budget: testBudget(),
      redis,
      stateLost: 0,
      countersRestored: 0,
      publisher,
    };
    const one = exposeMetrics(figures).find(({ name }) => name === 'sluice_nats_connected');
    return one?.values.map(({ labels, value }) => [labels.connection, value]);
  };
  const hasRoom = (bytes: number): boolean => publisher.hasRoomFor('1', new Slotted(), bytes);
  const [frames, parts] = [
    ['frames', 1],
    ['parts', 1],
  ];
  expect([told(), hasRoom(MIB)]).toEqual([[frames, parts], true]);
  await proxy.close();
  await expect.poll(() => partsLink.isAway).toBe(true);
  expect([told(), hasRoom(MIB), hasRoom(1_000)]).toEqual([[frames, ['parts', 0]], false, true]);
  await partsLink.close();
  await redis.close();
});
