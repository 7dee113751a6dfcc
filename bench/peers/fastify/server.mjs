/**
 * The service as a team would write it in an afternoon, and not carelessly: Fastify, ioredis, one publish per item, the same order of
 * checks, the same headers, the same promise (200 after JetStream has acknowledged every item). It keeps projects in memory.
 * What it leaves out: spooling, back-pressure, exactness of the limiter over several processes, and positions that survive Redis.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { parseEnvelope } from './envelope.mjs';
import { isUnwanted } from './filters.mjs';

const { PEER_PORT, PEER_REDIS_URL, PEER_NATS_URL, PEER_PROJECTS } = process.env;
const projects = new Map(
  JSON.parse(readFileSync(PEER_PROJECTS, 'utf8')).map((project) => [project.id, project]),
);
const DECODERS = { gzip: promisify(gunzip), deflate: promisify(inflate), br: promisify(brotliDecompress) };
const BODY_BYTES_MAX = 5 * 1024 * 1024;

const redis = new Redis(PEER_REDIS_URL);
// A sliding window of two fixed ones, the usual approximation.
redis.defineCommand('take', {
  numberOfKeys: 2,
  lua: `local limit, share = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = tonumber(redis.call('GET', KEYS[1]) or 0)
local before = tonumber(redis.call('GET', KEYS[2]) or 0)
if now + before * share >= limit then return -1 end
redis.call('SET', KEYS[1], now + 1, 'EX', 120)
return math.floor(limit - now - 1 - before * share)`,
});
redis.defineCommand('count', {
  numberOfKeys: 1,
  lua: `local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if used >= tonumber(ARGV[1]) then return -1 end
return redis.call('INCR', KEYS[1])`,
});

const nats = await connect({ servers: PEER_NATS_URL, noAsyncTraces: true });
const manager = await jetstreamManager(nats);
await manager.streams.add({
  name: 'PEER',
  subjects: ['peer.>'],
  storage: 'file',
  discard: 'new',
  max_bytes: 4 * 1024 ** 3,
});
const js = jetstream(nats);

const app = Fastify({ bodyLimit: BODY_BYTES_MAX });
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

const keyOf = (request) =>
  request.query.compat_key ??
  request.query.sentry_key ??
  /(?:compat|sentry)_key=(\w+)/.exec(
    request.headers['x-service-auth'] ?? request.headers['x-sentry-auth'] ?? '',
  )?.[1];

async function takeToken(project, reply) {
  if (!project.rateLimit) return true;
  const minute = Math.floor(Date.now() / 60_000);
  const share = 1 - (Date.now() % 60_000) / 60_000;
  const remaining = await redis.take(
    `r:${project.id}:${minute}`,
    `r:${project.id}:${minute - 1}`,
    project.rateLimit,
    share,
  );
  reply.header('X-RateLimit-Remaining', Math.max(0, remaining));
  reply.header('X-RateLimit-Reset', (minute + 1) * 60);
  return remaining >= 0;
}

async function countUsage(project, reply) {
  const used = await redis.count(`q:${project.id}:${new Date().toISOString().slice(0, 7)}`, project.quota);
  if (used < 0) return false;
  reply.header('X-Service-Usage', `${used}/${project.quota}`);
  reply.header('X-Service-Usage-Percent', Math.floor((100 * used) / project.quota));
  if (4 * used > 3 * project.quota) reply.header('X-Service-Quota-Warning', 'true');
  return true;
}

async function readEnvelope(request) {
  const decode = DECODERS[request.headers['content-encoding']];
  try {
    return parseEnvelope(decode ? await decode(request.body) : (request.body ?? Buffer.alloc(0)));
  } catch {
    return undefined;
  }
}

const publish = (project, eventId, item) =>
  js.publish(
    `peer.${item.header.type}`,
    JSON.stringify({
      project: project.id,
      eventId,
      header: item.header,
      payload: item.payload.toString('base64'),
    }),
    {
      msgID: randomUUID(),
    },
  );

async function ingest(request, reply) {
  reply.header('Access-Control-Allow-Origin', '*');
  reply.header(
    'Access-Control-Expose-Headers',
    'X-RateLimit-Remaining, X-RateLimit-Reset, X-Service-Usage, X-Service-Usage-Percent, X-Service-Quota-Warning, Retry-After',
  );
  const key = keyOf(request);
  if (!key) return reply.code(401).send({ error: 'Missing authentication' });
  const project = projects.get(request.params.project);
  if (project?.key !== key) return reply.code(401).send({ error: 'Invalid project or key' });
  if (!(await takeToken(project, reply)))
    return reply.code(429).header('Retry-After', 60).send({ error: 'Rate limit exceeded' });
  const envelope = await readEnvelope(request);
  if (!envelope) return reply.code(400).send({ error: 'Invalid envelope format' });
  if (isUnwanted(envelope, request.headers)) return { id: envelope.eventId };
  if (!(await countUsage(project, reply))) return reply.code(429).send({ error: 'quota_exceeded' });
  await Promise.all(envelope.items.map((item) => publish(project, envelope.eventId, item)));
  return { id: envelope.eventId };
}

app.post('/api/:project/envelope', ingest);
app.post('/api/:project/envelope/', ingest);
await app.listen({ host: '127.0.0.1', port: Number(PEER_PORT) });
process.send?.('listening');
process.on('disconnect', () => process.exit(0));
