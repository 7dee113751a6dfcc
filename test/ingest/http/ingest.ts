/** One ingest request with everything around it in the hands of the test: its socket, the admission and the stream. */

import { unsupportedHintFor } from '../../../src/ingest/http/answers/limit-headers.ts';
import type { Outcome } from '../../../src/ingest/http/answers/outcome.ts';
import type { RequestServices } from '../../../src/ingest/http/endpoint-request.ts';
import { Exchange } from '../../../src/ingest/http/exchange.ts';
import type { ItemEndpoint } from '../../../src/ingest/http/item-endpoints.ts';
import { RequestMetrics } from '../../../src/ingest/http/metrics/request-metrics.ts';
import { OpenExchanges } from '../../../src/ingest/http/open-exchanges.ts';
import { IngestRequest } from '../../../src/ingest/http/request.ts';
import type { AdmissionResult, RateDecision, Wanted } from '../../../src/ingest/limit/admission.ts';
import { WHILE_AWAY } from '../../../src/ingest/limit/failure-policy.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import type { FilterName } from '../../../src/lib/filter-names.ts';
import { type ExtraType, storedTypes } from '../../../src/lib/item-types.ts';
import { createLog } from '../../../src/lib/log.ts';
import type { Project } from '../../../src/projects/project.ts';
import type { RateScope } from '../../../src/projects/project-state.ts';
import type { PublishResult } from '../../../src/stream/publish/publisher.ts';
import { testBudget } from '../envelope/bodies.ts';
import { projectOf } from '../limit/limit-fixture.ts';
import { headOf, Line, PLAIN_HEAD } from './line.ts';

export const EVENT = '{}\n{"type":"event"}\n{"message":"x"}';
export const TOKEN = { kind: 'admitted', remaining: 59, resetSec: 7 } as const;
export const REFUSED = { kind: 'refused', resetSec: 7, windowNumber: 1 } as const;
export const UNAVAILABLE = { kind: 'unavailable' } as const;
export const COUNTED = { kind: 'counted', position: 3, month: '2026-11' } as const;

type Asked = { scope: RateScope; wanted: Wanted; settle(admitted: AdmissionResult): void };
type Published = { entry: Record<string, unknown>; isSpooled: boolean; done(result: PublishResult): void };

export type Serving = {
  /** Undefined: the one for envelopes. */
  endpoint?: ItemEndpoint;
  query?: string;
  /** Types that are stored beside those that always are. */
  extraTypes?: ExtraType[];
  env?: keyof typeof WHILE_AWAY;
  headers?: Record<string, string>;
  knownRefusal?: () => RateDecision | undefined;
  rateLimits?: NonNullable<Project['rateLimits']>;
  keys?: NonNullable<Project['keys']>;
  pickSpooled?: RequestServices['pickSpooled'];
  admit?: () => void;
  publish?: () => void;
  spoolBytesMax?: number;
  /** Whether the publisher has room for the project. */
  hasRoomFor?: () => boolean;
};

/** A request whose head has come. */
export function serve(serving: Serving = {}) {
  const { env = 'production', headers = {}, knownRefusal = () => undefined, rateLimits, keys } = serving;
  const { endpoint, query = 'sentry_key=k', extraTypes = [] } = serving;
  const line = new Line();
  const outcomes: Outcome[] = [];
  const refunds: string[] = [];
  const asked: Asked[] = [];
  const published: Published[] = [];
  const { spoolBytesMax } = serving;
  const budget = testBudget({
    storeTypes: extraTypes,
    ...(spoolBytesMax !== undefined && { spoolBytesMax }),
  });
  const admission = {
    knownRefusal,
    admit: (scope: RateScope, wanted: Wanted, settle: (admitted: AdmissionResult) => void) => {
      serving.admit?.();
      if (wanted.token || wanted.count) asked.push({ scope, wanted, settle });
      else settle({ rate: undefined, count: undefined });
    },
    refund: (_project: unknown, month: string) => refunds.push(month),
  };
  const publish = (entry: Published['entry'], { source }: { source?: unknown }, done: Published['done']) => {
    serving.publish?.();
    published.push({ entry, isSpooled: source !== undefined, done });
  };
  const fields = { limit: 60, quota: 10, filters: ['localhost'] as FilterName[] };
  const project = projectOf({ id: '1', ...fields, ...(rateLimits && { rateLimits }), ...(keys && { keys }) });
  const metrics = new RequestMetrics();
  const services = {
    replica: { findProject: () => project },
    admission,
    publisher: { available: true, hasRoomFor: () => serving.hasRoomFor?.() ?? true, publish },
    budget,
    metrics,
    clock: systemClock,
    log: createLog('silent'),
    whileAway: WHILE_AWAY[env],
    unsupportedHint: unsupportedHintFor(storedTypes(extraTypes)),
    pickSpooled: serving.pickSpooled,
    record: { note: (_endpoint: string, outcome: Outcome) => outcomes.push(outcome) },
  };
  const exchange = new Exchange(line, new OpenExchanges(systemClock), PLAIN_HEAD);
  const request = new IngestRequest(services as unknown as RequestServices, exchange, endpoint);
  request.start(headOf(headers, query));
  const receive = async (text: string, isLast = true): Promise<void> => {
    line.data(new TextEncoder().encode(text).buffer, isLast);
    await turn();
  };
  /** The answer to the last of what was asked. */
  const settle = async (rate: AdmissionResult['rate'], count?: AdmissionResult['count']): Promise<void> => {
    asked.at(-1)?.settle({ rate, count });
    await turn();
  };
  const store = async (result: PublishResult): Promise<void> => {
    published.at(-1)?.done(result);
    await turn();
  };
  /** `t`: a token was wanted, `c`: a position, `b`: both. */
  const wants = (): string =>
    asked.map(({ wanted: { token, count } }) => (token ? (count ? 'b' : 't') : 'c')).join('');
  return {
    project,
    metrics,
    line,
    outcomes,
    refunds,
    asked,
    published,
    budget,
    receive,
    settle,
    store,
    wants,
  };
}

/** All that follows from what has happened, but for what the disk does. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
