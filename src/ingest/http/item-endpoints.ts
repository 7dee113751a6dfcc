/**
 * The endpoints below `/api/{project}/` that take items. An endpoint has a reader for its bodies,
 * and the answers that it gives; a row of {@link itemRoutes} gives its address. The request
 * (request.ts) is the same for all of them.
 */
import type { ExtraType, OtlpType } from '../../lib/item-types.ts';
import { OTLP_CONTENT_TYPES, type OtlpForm } from '../../lib/otlp.ts';
import { ITEM_HEADERS_BYTES_MAX, ITEMS_MAX, REPORTS_BYTES_MAX } from '../../limits.ts';
import { newEventReader, newReportReader } from '../envelope/json-reader.ts';
import { type NewItemReader, newParser } from '../envelope/parser.ts';
import { OtlpReader } from '../otlp/otlp-reader.ts';
import { OTLP_ANSWERS } from './answers/otlp.ts';
import { ENVELOPE_ANSWERS } from './answers/outcome.ts';
import type { Endpoint } from './endpoint-request.ts';
import type { RequestHead } from './request-head.ts';

export type ItemEndpoint = Endpoint & {
  /**
   * Returns the reader of a request's body; undefined: the endpoint does not take its content type.
   */
  readerFor(head: RequestHead, projectId: string): NewItemReader | undefined;
  /**
   * Bound of a body as sent, and of an inflated body, in bytes. Where the settings have a lower
   * bound, the settings' bound holds.
   */
  readonly bytesMax?: number;
  /** Whether a body without an encoding may be base64 of JSON or of a stream in zlib's wrapping. */
  readonly mayBeBase64?: boolean;
};

export const ENVELOPE: ItemEndpoint = {
  name: 'ingest',
  readerFor: () => newParser,
  answers: ENVELOPE_ANSWERS,
};

/** Endpoint for events without an envelope, from clients before 2020 and from scripts. */
const STORE: ItemEndpoint = {
  name: 'ingest',
  readerFor: () => newEventReader,
  mayBeBase64: true,
  answers: ENVELOPE_ANSWERS,
};

/**
 * Content types of browsers' reports. Browsers before 2015 send CSP reports as `application/json`.
 */
const REPORT_TYPES: ReadonlySet<string> = new Set([
  'application/csp-report',
  'application/reports+json',
  'application/expect-ct-report+json',
  'application/json',
]);

/** Query parameters that an operator may write into the address to which browsers send reports. */
const REPORT_NAMES = ['sentry_release', 'sentry_environment'];
/**
 * Most bytes of a report's item header, so that the headers of ITEMS_MAX reports together stay
 * within ITEM_HEADERS_BYTES_MAX.
 */
const REPORT_HEADER_BYTES_MAX = Math.floor(ITEM_HEADERS_BYTES_MAX / ITEMS_MAX);

/**
 * Returns the item header that each report of a request gets. A value that would make the header
 * too long is left out.
 */
function reportHeader(contentType: string, query: string): Uint8Array {
  const parameters = new URLSearchParams(query);
  const header: Record<string, string> = { type: 'raw_security', content_type: contentType };
  let bytes = Buffer.from(JSON.stringify(header));
  for (const name of REPORT_NAMES) {
    const value = parameters.get(name);
    if (!value) continue;
    const longer = Buffer.from(JSON.stringify({ ...header, [name]: value }));
    if (longer.length > REPORT_HEADER_BYTES_MAX) continue;
    header[name] = value;
    bytes = longer;
  }
  return bytes;
}

/** The content type in small letters, without parameters. */
const contentTypeOf = (head: RequestHead): string =>
  (head.getHeader('content-type').split(';', 1)[0] as string).trim().toLowerCase();

/**
 * Endpoint for reports that browsers send by themselves: of CSP, Expect-CT and the Reporting API.
 */
const SECURITY: ItemEndpoint = {
  name: 'ingest',
  readerFor: (head) => {
    const contentType = contentTypeOf(head);
    if (!REPORT_TYPES.has(contentType)) return undefined;
    return newReportReader(reportHeader(contentType, head.query));
  },
  bytesMax: REPORTS_BYTES_MAX,
  answers: ENVELOPE_ANSWERS,
};

/** An address, and the endpoint that serves a request there. */
export type ItemRoute = {
  /** The path below `/api/{project}/`, without slashes at its ends. */
  readonly path: string;
  /** Returns the endpoint that answers in the form of the request. */
  endpointFor(head: RequestHead): ItemEndpoint;
};

const OTLP_PATH = 'integration/otlp/v1/';

/**
 * Makes the route of one OTLP signal. The answer has the encoding of the body, which the content
 * type names. An unknown content type is answered in JSON.
 */
function otlpRoute(signal: string, type: OtlpType): ItemRoute {
  const path = OTLP_PATH + signal;
  const endpointIn = (form: OtlpForm, isTaken: boolean): ItemEndpoint => ({
    name: 'ingest',
    readerFor: (_head, projectId) =>
      isTaken ? (receiver) => new OtlpReader({ type, form }, projectId, receiver) : undefined,
    answers: OTLP_ANSWERS[form],
  });
  const protobuf = endpointIn('protobuf', true);
  const json = endpointIn('json', true);
  const other = endpointIn('json', false);
  return {
    path,
    endpointFor: (head) => {
      const contentType = contentTypeOf(head);
      if (contentType === OTLP_CONTENT_TYPES.protobuf) return protobuf;
      return contentType === OTLP_CONTENT_TYPES.json ? json : other;
    },
  };
}

const route = (path: string, endpoint: ItemEndpoint): ItemRoute => ({ path, endpointFor: () => endpoint });

/**
 * All addresses for items. The address of OTLP metrics exists only where OTLP metrics are stored.
 */
export const itemRoutes = (storeTypes: readonly ExtraType[]): ItemRoute[] => [
  route('envelope', ENVELOPE),
  route('store', STORE),
  route('security', SECURITY),
  otlpRoute('traces', 'otlp_traces'),
  otlpRoute('logs', 'otlp_logs'),
  ...(storeTypes.includes('otlp_metrics') ? [otlpRoute('metrics', 'otlp_metrics')] : []),
];
