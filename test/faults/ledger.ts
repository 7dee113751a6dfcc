/**
 * What every client was told, and what must follow from it.
 *
 * Nothing here asks a server anything: `judge` takes the answers and what was found afterwards (the evidence) and says which
 * promises were broken. Times are this process's monotonic milliseconds, for all clients the same clock.
 */

import { LEASE_NEED_MS } from '../../src/limits.ts';

export type ProjectName = 'open' | 'limited' | 'leased' | 'capped' | 'attacker';

/** One request and its fate. */
export type Told = {
  id: string;
  project: ProjectName;
  port: number;
  sentAt: number;
  answeredAt: number;
  /** 0: no answer came, whether the request arrived is unknown. */
  status: number;
  /** Bytes of the payload, as JSON, that must be found in the sink; undefined for OTLP, which the processor decodes. */
  payloadBytes: number | undefined;
  /** What the payload carries, so that what is stored is known to be what was sent. */
  mark: string;
  /** A 503 to OTLP may mean what a 500 means to an envelope: that nobody knows. */
  isOtlp?: true;
  /** The answer shows that a rate token was used. */
  admitted: boolean;
  /** A 429 that says that the limiter was away: the call that was lost may have counted the request. */
  limiterAway: boolean;
  /** This request's place in the month's usage, where the answer said it. */
  position?: number | undefined;
  /** What came instead of an answer, and when. */
  silence?: string;
};

export type Stored = { count: number; payloadBytes: number; mark: string; projectId: string };

export type Evidence = {
  /** By event id. */
  stored: ReadonlyMap<string, Stored>;
  deadLetters: number;
  usage: Readonly<Record<ProjectName, number>>;
};

export type ProjectTerms = { id: string; ratePerMinute?: number; quota?: number };

/** What the contract excepts: Redis lost its memory at that moment. */
export type RedisLoss = { at: number; endedAt: number };

/** What happened that the contract excepts. */
export type Excuses = {
  redisLosses: RedisLoss[];
  /** When connections to Redis were cut, on the clock of {@link Told}. */
  redisCuts: number[];
  /** How often Redis's clock stepped forward. */
  clockSteps: number;
};

export type Terms = Readonly<Excuses> & {
  projects: Readonly<Record<ProjectName, ProjectTerms>>;
  /** Nothing was killed that holds a client's connection: every request must have had an answer. */
  answersAll: boolean;
  /** The sink keeps a tally, to which counts that Redis lost are raised by themselves. */
  hasTally: boolean;
};

export type Judgement = {
  requests: number;
  accepted: number;
  refused: number;
  /** 500, or no answer. */
  unknown: number;
  lost: number;
  /** Event ids of some of the lost. */
  lostIds: string[];
  double: number;
  /** Of all limited projects: most admissions that lie within 60 s for certain, and how many may. */
  windows: { project: ProjectName; most: number; allowed: number }[];
  overAdmitted: number;
  /** Summed over projects: counted beyond the 200s, and how much that may be. */
  usageBeyond: number;
  usageBeyondMax: number;
  /** One sentence for each broken promise; none when all hold. */
  broken: string[];
};

const WINDOW_MS = 60_000;
const CHECKPOINT_MS_MAX = 10_000;
const LISTED_MAX = 5;
const EXPECTED_STATUS = new Set([0, 200, 429, 500, 503]);

/** The most admissions of which it is certain that they lie within one span of 60 s: sent after its begin, answered before its end. */
export function mostWithinWindow(admissions: readonly Told[]): number {
  const bySent = admissions.toSorted((a, b) => a.sentAt - b.sentAt);
  let most = 0;
  for (let from = 0; from < bySent.length; from++) {
    const end = (bySent[from] as Told).sentAt + WINDOW_MS;
    let count = 0;
    for (let i = from; i < bySent.length && (bySent[i] as Told).sentAt <= end; i++)
      if ((bySent[i] as Told).answeredAt <= end) count++;
    most = Math.max(most, count);
    if (bySent.length - from <= most) break;
  }
  return most;
}

const listed = (ids: readonly string[]): string =>
  ids.slice(0, LISTED_MAX).join(', ') + (ids.length > LISTED_MAX ? ', …' : '');

/** What was told against what is stored. */
function judgeStorage(told: readonly Told[], evidence: Evidence, terms: Terms) {
  const lost: string[] = [];
  const double: string[] = [];
  const ghosts: string[] = [];
  const altered: string[] = [];
  for (const one of told) {
    const found = evidence.stored.get(one.id);
    if (!found) {
      if (one.status === 200) lost.push(one.id);
      continue;
    }
    if (found.count > 1) double.push(one.id);
    if (one.status === 429 || (one.status === 503 && !one.isOtlp)) ghosts.push(one.id);
    const isWhole = one.payloadBytes === undefined || found.payloadBytes === one.payloadBytes;
    const same = isWhole && found.mark === one.mark;
    if (!same || found.projectId !== terms.projects[one.project].id) altered.push(one.id);
  }
  const broken: string[] = [];
  if (lost.length > 0) broken.push(`lost: told 200, not stored: ${listed(lost)}`);
  if (double.length > 0) broken.push(`stored twice: ${listed(double)}`);
  if (ghosts.length > 0) broken.push(`told 429 or 503, and stored: ${listed(ghosts)}`);
  if (altered.length > 0) broken.push(`stored otherwise than sent: ${listed(altered)}`);
  if (evidence.deadLetters > 0) broken.push(`${evidence.deadLetters} dead letters`);
  return { lost, double: double.length, broken };
}

/** 60-second windows. A loss of Redis's memory, or a step of its clock, allows one further `limit` in all of them. */
function judgeWindows(told: readonly Told[], { projects, redisLosses, clockSteps }: Terms) {
  const windows: Judgement['windows'] = [];
  const broken: string[] = [];
  for (const [name, { ratePerMinute: limit }] of Object.entries(projects)) {
    if (limit === undefined) continue;
    const project = name as ProjectName;
    const most = mostWithinWindow(told.filter((one) => one.project === project && one.admitted));
    const allowed = limit * (1 + redisLosses.length + clockSteps);
    windows.push({ project, most, allowed });
    if (most > allowed) broken.push(`${project}: ${most} admitted within 60 s, the limit is ${allowed}`);
  }
  return { windows, broken };
}

/** Accepted requests that the newest checkpoint may not have known of when Redis lost its memory. */
const uncheckpointed = (accepted: readonly Told[], losses: readonly RedisLoss[]): number =>
  losses.reduce((sum, loss) => {
    const recent = accepted.filter(
      (one) => one.answeredAt >= loss.at - CHECKPOINT_MS_MAX && one.sentAt <= loss.endedAt,
    );
    return sum + recent.length;
  }, 0);

function judgeUsage(told: readonly Told[], usage: Evidence['usage'], terms: Terms) {
  const broken: string[] = [];
  let beyond = 0;
  let beyondMax = 0;
  for (const [name, { quota }] of Object.entries(terms.projects)) {
    const project = name as ProjectName;
    const mine = told.filter((one) => one.project === project);
    const accepted = mine.filter(({ status }) => status === 200);
    // A 503 may come after the increment; it is taken back once, and that once may be lost. A worker
    // that waited too long for Redis's reply, or lost its connection, asks once more: the position
    // in the first reply is wasted.
    const uncertain = mine.filter(
      ({ status, limiterAway, sentAt, answeredAt }) =>
        status === 0 ||
        status === 500 ||
        status === 503 ||
        limiterAway ||
        answeredAt - sentAt > LEASE_NEED_MS ||
        terms.redisCuts.some((cut) => sentAt <= cut && cut <= answeredAt),
    ).length;
    const excused = uncheckpointed(accepted, terms.redisLosses);
    const over = usage[project] - accepted.length;
    beyond += Math.max(0, over);
    beyondMax += uncertain;
    if (over < (terms.hasTally ? 0 : -excused))
      broken.push(`${project}: usage ${usage[project]} is lower than its ${accepted.length} 200s`);
    if (over > uncertain)
      broken.push(
        `${project}: usage ${usage[project]}, but only ${accepted.length + uncertain} can be counted`,
      );
    if (quota !== undefined && accepted.length > quota + excused)
      broken.push(`${project}: ${accepted.length} accepted, its quota is ${quota}`);
    if (uncertain === 0 && terms.redisLosses.length === 0) broken.push(...judgePositions(project, accepted));
  }
  return { beyond, beyondMax, broken };
}

/** While nothing fails, N accepted requests show each of 1..N once. */
function judgePositions(project: ProjectName, accepted: readonly Told[]): string[] {
  const positions = new Set(accepted.map(({ position }) => position));
  const all = accepted.every((_, n) => positions.has(n + 1));
  return all ? [] : [`${project}: ${accepted.length} accepted do not show each position once`];
}

function sayUnanswered(unanswered: readonly Told[]): string {
  const how = unanswered.map(({ port, silence }) => `port ${port}: ${silence}`);
  return `${unanswered.length} requests had no answer: ${listed(how)}`;
}

export function judge(told: readonly Told[], evidence: Evidence, terms: Terms): Judgement {
  const storage = judgeStorage(told, evidence, terms);
  const windows = judgeWindows(told, terms);
  const usage = judgeUsage(told, evidence.usage, terms);
  const odd = told.filter(({ status }) => !EXPECTED_STATUS.has(status));
  const count = (test: (one: Told) => boolean): number => told.filter(test).length;
  const unanswered = told.filter(({ status }) => status === 0);
  const broken = [...storage.broken, ...windows.broken, ...usage.broken];
  if (odd.length > 0) broken.push(`answered ${odd[0]?.status}: ${listed(odd.map(({ id }) => id))}`);
  if (terms.answersAll && unanswered.length > 0) broken.push(sayUnanswered(unanswered));
  return {
    requests: told.length,
    accepted: count(({ status }) => status === 200),
    refused: count(({ status }) => status === 429 || status === 503),
    unknown: count(({ status }) => status === 0 || status === 500),
    lost: storage.lost.length,
    lostIds: storage.lost.slice(0, LISTED_MAX),
    double: storage.double,
    windows: windows.windows,
    overAdmitted: windows.broken.length,
    usageBeyond: usage.beyond,
    usageBeyondMax: usage.beyondMax,
    broken,
  };
}
