/** What the tables of requests in Relay's tests are made of. */
import { lines } from '../sdk-tests/parts.ts';

/** What is stored of an item: its type, its JSON or bytes, and members of its header. */
export type Stored = readonly [type: string, payload: unknown, header?: Readonly<Record<string, unknown>>];

export type RelayRequest = {
  /** File and function of Relay's tests that send such a request. */
  from: string;
  /** What is special about the request. */
  it: string;
  /** Set where sluice does something else than the test expects (docs/relay-tests.md says why). */
  differs?: true;
  method?: 'GET' | 'OPTIONS';
  /** The path below `/api/{project}/`, or a whole path; without this `envelope/`. */
  path?: string;
  /** Where the key is; without this in `x-sentry-auth`. */
  key?: 'query' | 'none';
  query?: string;
  headers?: Readonly<Record<string, string>>;
  body?: string | Uint8Array;
  status: number;
  /** The id that is answered; without it any made one on 200 of an envelope, else none. */
  id?: string;
  /** The value of X-Service-Empty. */
  empty?: 'no-items' | 'unstored-types';
  /** Further headers of the answer; null: the answer has no such header. */
  answer?: Readonly<Record<string, string | null>>;
  stored?: readonly Stored[];
  /** Items that become dead letters. */
  letters?: number;
  /** The time of sending that is stored; null: none. */
  sentAt?: string | null;
};

/** An envelope as sentry-python writes it for Relay's tests: a line feed at the end. */
export const envelope = (header: object, ...items: readonly string[]): string =>
  `${lines(header, ...items)}\n`;
