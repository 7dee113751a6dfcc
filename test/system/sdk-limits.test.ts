/** Our hints of limits, read as SDKs read them: each falls silent as it should, and in nothing else (docs/sdk-tests.md). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXPECTED_LIMITS } from '../support/sdk-tests/expected-limits.ts';
import { type LimitAnswer, SDK_NAMES, SDKS, type SdkName, silentFor } from '../support/sdk-tests/limits.ts';
import { type NewProject, System } from '../support/system.ts';

const DAY_SEC = 86_400;
const STORED = ['event', 'transaction', 'span', 'log'] as const;
const ITEM: Readonly<Record<string, string>> = {
  replay_recording: '{"type":"replay_recording","length":18}\n{"segment_id":0}\n[]',
};
const item = (type: string): string => ITEM[type] ?? `{"type":"${type}"}\n{}`;
const envelope = (...types: string[]): string => `{}\n${types.map(item).join('\n')}`;

let system: System;
beforeAll(async () => {
  system = await System.start({ processor: false });
});
afterAll(() => system.stop());

/** Sends the envelope until a limit of the project answers it. */
async function answerOf(wanted: Partial<NewProject>, body: string, sent = 2): Promise<LimitAnswer> {
  const project = await system.createProject(wanted);
  let answer: LimitAnswer | undefined;
  for (let number = 0; number < sent; number++) {
    const response = await system.send(project, body);
    const hint = response.headers.get('x-sentry-rate-limits');
    const retryAfter = response.headers.get('retry-after');
    answer = {
      status: response.status,
      body: await response.text(),
      ...(hint !== null && { hint }),
      ...(retryAfter !== null && { retryAfter }),
    };
  }
  return answer as LimitAnswer;
}

/** The SDKs that send no item of the type for as long as the answer says, and those that send on. */
function divided(type: string, answer: LimitAnswer, seconds: number): { silent: SdkName[]; odd: string[] } {
  const times = SDK_NAMES.map((name) => [name, silentFor(name, type, answer)] as const);
  return {
    silent: times.filter(([, time]) => time === seconds).map(([name]) => name),
    odd: times.filter(([, time]) => time !== seconds && time !== 0).map(([name, time]) => `${name} ${time}`),
  };
}
const secondsOf = ({ hint = '' }: LimitAnswer): number => Number.parseInt(hint, 10);
const without = (...names: SdkName[]): SdkName[] => SDK_NAMES.filter((name) => !names.includes(name));

describe.each(SDK_NAMES)('the reader of %s reads what the tests of this SDK have it read', (name) => {
  it.each(
    EXPECTED_LIMITS[name].map(([answer, silence]) => [JSON.stringify(answer), answer, silence] as const),
  )('%s', (_name, answer, silence) => expect(SDKS[name].read(answer)).toEqual(silence));
});

describe('a 429', () => {
  // sentry-php reads no header of a 429 that has a body.
  const ALL = without('php');

  it.each<[string, string, SdkName[]]>([
    ['errors', 'event', ALL],
    ['transactions', 'transaction', ALL],
    // The SDK in C has no category of logs.
    ['logs', 'log', without('php', 'native')],
    // The others send no spans of their own.
    ['spans', 'span', ['javascript', 'python', 'java', 'ruby', 'dotnet']],
    ['replays', 'replay_event', ['javascript']],
  ])(
    'of a limit of %s stops these items for as long as it says, and no others',
    async (limit, type, silent) => {
      const answer = await answerOf({ rateLimits: { [limit]: 1 } }, envelope(type));
      expect([answer.status, answer.retryAfter]).toEqual([429, '60']);
      expect(secondsOf(answer)).toBeGreaterThan(0);
      expect(divided(type, answer, secondsOf(answer))).toEqual({ silent, odd: [] });
      for (const other of STORED.filter((one) => one !== type)) {
        const { silent: stopped } = divided(other, answer, secondsOf(answer));
        // The SDK in C counts all but transactions, sessions and replays as errors.
        expect(stopped).toEqual(limit === 'errors' && other !== 'transaction' ? ['native'] : []);
      }
    },
  );

  it('of two limits stops both', async () => {
    const answer = await answerOf(
      { rateLimits: { errors: 1, transactions: 1 } },
      envelope('event', 'transaction'),
    );
    expect(answer.status).toBe(429);
    for (const type of ['event', 'transaction'])
      expect(divided(type, answer, secondsOf(answer))).toEqual({ silent: ALL, odd: [] });
  });

  it.each<[string, Partial<NewProject>, number]>([
    ['the limit of the project', { rateLimit: 1 }, 2],
    ['the quota', { quota: 0 }, 1],
  ])('of %s stops everything', async (_name, wanted, sent) => {
    const answer = await answerOf(wanted, envelope('event'), sent);
    expect([answer.status, answer.hint]).toEqual([429, expect.stringMatching(/^\d+::project$/)]);
    for (const type of STORED)
      expect(divided(type, answer, secondsOf(answer))).toEqual({ silent: ALL, odd: [] });
  });
});

describe('a 200', () => {
  it('with two hints is read to its end by every SDK', async () => {
    const answer = await answerOf(
      { rateLimits: { transactions: 1 } },
      envelope('event', 'transaction', 'profile'),
    );
    expect(answer.status).toBe(200);
    expect(divided('transaction', answer, secondsOf(answer))).toEqual({ silent: SDK_NAMES, odd: [] });
    expect(divided('profile', answer, DAY_SEC)).toEqual({ silent: without('go', 'rust', 'native'), odd: [] });
    expect(divided('event', answer, 0).odd).toEqual([]);
  });

  /** Item types of each SDK that are not stored, and of which a hint cannot stop it. */
  const SENT: Readonly<Record<SdkName, { stopped: string[]; sentOn: string[] }>> = {
    javascript: {
      stopped: [
        ...['session', 'sessions', 'client_report', 'attachment', 'profile', 'profile_chunk', 'check_in'],
        ...['feedback', 'user_report', 'trace_metric', 'raw_security'],
      ],
      sentOn: [],
    },
    python: {
      stopped: [
        ...['session', 'sessions', 'client_report', 'attachment', 'profile', 'profile_chunk', 'check_in'],
        'trace_metric',
      ],
      sentOn: [],
    },
    go: { stopped: ['check_in', 'trace_metric'], sentOn: ['attachment', 'client_report'] },
    java: {
      stopped: [
        ...['session', 'attachment', 'profile', 'profile_chunk', 'check_in', 'replay_video', 'feedback'],
        'trace_metric',
      ],
      sentOn: ['client_report', 'user_report'],
    },
    rust: {
      stopped: ['session', 'sessions', 'attachment', 'trace_metric'],
      sentOn: ['check_in', 'client_report'],
    },
    ruby: {
      stopped: ['sessions', 'client_report', 'attachment', 'profile', 'check_in', 'trace_metric'],
      sentOn: [],
    },
    php: { stopped: ['profile', 'check_in', 'trace_metric'], sentOn: ['client_report'] },
    dotnet: {
      stopped: [
        ...['session', 'attachment', 'profile', 'check_in', 'feedback', 'trace_metric', 'client_report'],
        ...['user_report', 'statsd'],
      ],
      sentOn: [],
    },
    native: {
      stopped: ['session', 'replay_video'],
      sentOn: ['attachment', 'client_report', 'feedback', 'user_report'],
    },
    cocoa: {
      stopped: [
        ...['session', 'attachment', 'profile', 'profile_chunk', 'replay_video', 'feedback', 'trace_metric'],
        'statsd',
      ],
      sentOn: ['client_report'],
    },
  };

  it.each(SDK_NAMES)('stops %s in what is not stored, and in nothing that is', async (name) => {
    const { stopped, sentOn } = SENT[name];
    const silence: [string, number][] = [];
    for (const type of [...stopped, ...sentOn]) {
      const answer = await answerOf({}, envelope('event', type), 1);
      expect(answer.status).toBe(200);
      silence.push([type, silentFor(name, type, answer)]);
      for (const stored of STORED)
        expect([type, stored, silentFor(name, stored, answer)]).toEqual([type, stored, 0]);
    }
    expect(silence).toEqual([...stopped.map((type) => [type, DAY_SEC]), ...sentOn.map((type) => [type, 0])]);
  });
});
