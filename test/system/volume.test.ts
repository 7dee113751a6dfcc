/** With 2 workers and 64 connections: tens of thousands of distinct envelopes are each stored once and counted once. */
import { Agent, request } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { rounds } from '../support/rounds.ts';
import { type Project, System, until } from '../support/system.ts';

const ENVELOPES = rounds(50_000, 10_000);
const CONNECTIONS = 64;
let system: System;
let project: Project;

beforeAll(async () => {
  system = await System.start({ workers: 2, env: { SLUICE_PLAN_LIMITS: 'free-only' } });
  project = await system.createProject({ quota: 10 * ENVELOPES });
});
afterAll(() => system.stop());

/** Status and usage position of one request. */
function post(agent: Agent, body: string): Promise<{ status: number; position: number }> {
  return new Promise((resolve, reject) => {
    const options = { agent, method: 'POST', headers: { 'content-length': Buffer.byteLength(body) } };
    const req = request(system.endpoint(project), options, (res) => {
      res.resume();
      res.once('end', () => {
        const usage = `${res.headers['x-service-usage']}`;
        resolve({ status: res.statusCode ?? 0, position: Number(usage.split('/')[0]) });
      });
    });
    req.once('error', reject);
    req.end(body);
  });
}

it(`${ENVELOPES} envelopes`, async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const ids: string[] = [];
  const positions: number[] = [];
  const statuses = new Map<number, number>();
  const client = async (): Promise<void> => {
    while (ids.length < ENVELOPES) {
      const id = eventId();
      ids.push(id);
      const { status, position } = await post(agent, errorEvent(id));
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      positions.push(position);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, client));
  agent.destroy();
  expect(Object.fromEntries(statuses)).toEqual({ 200: ENVELOPES });
  expect(positions.sort((a, b) => a - b)).toEqual(Array.from({ length: ENVELOPES }, (_, n) => n + 1));
  await until(() => system.stored().length >= ENVELOPES, 150_000);
  expect(
    system
      .stored()
      .map((record) => record.event_id)
      .sort(),
  ).toEqual(ids.sort());
  expect(system.ingest.errors).toEqual([]);
  expect(system.processor?.errors).toEqual([]);
});
