/** A real broker with the registry's buckets, and a link to it. */
import { Kvm } from '@nats-io/kv';
import { createLog } from '../../src/lib/log.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import {
  AUDIT_STREAM,
  AUDIT_SUBJECT,
  COUNTERS_BUCKET,
  HEARTBEATS_BUCKET,
  PROJECTS_BUCKET,
} from '../../src/stream/topology.ts';

export const log = createLog('silent');

export const link = (url: string): Promise<NatsLink> =>
  NatsLink.connect({ urls: [url], name: 'test', log, waitForServer: true });

/** The stream that every change of the registry is recorded in. */
export async function makeAudit(to: NatsLink): Promise<void> {
  await (await to.manager()).streams.add({ name: AUDIT_STREAM, subjects: [`${AUDIT_SUBJECT}.>`] });
}

export async function makeBuckets(to: NatsLink): Promise<void> {
  await makeAudit(to);
  const kvm = new Kvm(to.js);
  for (const bucket of [PROJECTS_BUCKET, HEARTBEATS_BUCKET, COUNTERS_BUCKET]) await kvm.create(bucket);
}

/** Waits until `holds`, asking every 10 ms. @returns how long it took, in ms; throws after `withinMs` */
export async function eventually(withinMs: number, holds: () => boolean): Promise<number> {
  const began = performance.now();
  while (!holds()) {
    if (performance.now() - began > withinMs) throw new Error(`not so within ${withinMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return performance.now() - began;
}
