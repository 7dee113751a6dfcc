/** Requests of Relay's tests to other addresses than that of envelopes (docs/relay-tests.md names the files). */
import { deflateSync, gzipSync } from 'node:zlib';
import { DASHED, ID, json, sized } from '../sdk-tests/parts.ts';
import { envelope, type RelayRequest, type Stored } from './parts.ts';

const MESSAGE = { message: 'the disk is full' };
const BYTES = { 'content-type': 'application/octet-stream' };
const JSON_TYPE = { 'content-type': 'application/json' };
/** More than a body may have after decompression. It takes a few kilobytes as sent. */
const BOMB_BYTES = 24 * 1024 * 1024;
const bombOf = (path: string): Uint8Array =>
  gzipSync(`${path === 'store/' ? '' : '{}\n{"type":"event"}\n'}{"a":"${'x'.repeat(BOMB_BYTES)}"}`);
const BOMB_HEADERS = { ...BYTES, 'content-encoding': 'gzip' };

const store = (from: string, it: string, body: unknown, more: Partial<RelayRequest> = {}): RelayRequest => ({
  from,
  it,
  path: 'store/',
  headers: BYTES,
  body: typeof body === 'string' || body instanceof Uint8Array ? body : json(body),
  status: 200,
  stored: [['event', body]],
  ...more,
});

const TRANSACTION = { type: 'transaction', transaction: 'hi', spans: [], contexts: { trace: { op: 'hi' } } };
const EXTRA = { ...MESSAGE, extra: { text: 'the disk is full' } };

const STORE: readonly RelayRequest[] = [
  store('store.py: store, processing, store_not_normalized', 'an event', EXTRA),
  store('basic.py: store_post_trailing_slash', 'an event, with two slashes', MESSAGE, { path: 'store//' }),
  store(
    'store.py: store_node_base64',
    'an event of Raven for Node.js',
    deflateSync(json(MESSAGE)).toString('base64'),
    { stored: [['event', MESSAGE]] },
  ),
  store('common.rs: minimal_empty_event', 'an empty object', {}),
  store('common.rs: minimal_event_id', 'an event with an id', { event_id: ID }, { id: ID }),
  store('common.rs: minimal_event_invalid_type', 'an event of a type that nobody knows', { type: 'invalid' }),
  store('common.rs: minimal_event_type', 'a report of Expect-CT', { type: 'expectct' }, { differs: true }),
  store('store.py: processing, processing_quotas', 'a transaction', TRANSACTION, { differs: true }),
  store(
    'store.py: store_pii_stripping',
    'an address in a text',
    { extra: { foo: 'a@mail.example' } },
    {
      differs: true,
    },
  ),
  store('store.rs: parse_event (no test)', 'NaN, from Raven for Python', '{"a":NaN}', {
    differs: true,
    headers: { ...BYTES, 'user-agent': 'raven-python/6.9' },
    status: 400,
    stored: [],
  }),
  store('store.rs: parse_event (no test)', 'an id that is none', { event_id: '12' }, { differs: true }),
  store('store.rs: handle_post (no test)', 'an envelope', envelope({}, sized('event', MESSAGE)), {
    differs: true,
    headers: { 'content-type': 'application/x-sentry-envelope' },
    status: 400,
    stored: [],
  }),
  ...Object.entries({
    gzip: gzipSync(json(MESSAGE)),
    deflate: deflateSync(json(MESSAGE)),
    identity: json(MESSAGE),
    '': json(MESSAGE),
  }).map(([encoding, body]) =>
    store('basic.py: compression', `an event in the encoding "${encoding}"`, body, {
      headers: { ...BYTES, 'content-encoding': encoding },
      stored: [['event', MESSAGE]],
    }),
  ),
  store('basic.py: size_limit_status_code', 'an event of 6 MiB', `{"a":"${'x'.repeat(6 * 1024 * 1024)}"}`, {
    status: 413,
    stored: [],
  }),
  ...['store/', 'envelope/'].flatMap((path) => [
    store('basic.py: zipbomb_content_encoding', `a bomb of an event at ${path}`, bombOf(path), {
      path,
      headers: BOMB_HEADERS,
      status: 413,
      stored: [],
    }),
    store(
      'basic.py: zipbomb_content_encoding',
      `a bomb of zeros at ${path}`,
      gzipSync(Buffer.alloc(BOMB_BYTES)),
      {
        differs: true,
        path,
        headers: BOMB_HEADERS,
        status: 400,
        stored: [],
      },
    ),
  ]),
  store('basic.py: corp_response_header', 'an event: no header about resources of other origins', MESSAGE, {
    differs: true,
    answer: { 'cross-origin-resource-policy': null },
  }),
  {
    from: 'basic.py: store_pixel_gif',
    it: 'an event in the query of a GET',
    differs: true,
    method: 'GET',
    path: 'store/',
    key: 'query',
    query: '&sentry_data=%7B%22message%22%3A%22hi%22%7D',
    status: 405,
    answer: { allow: 'POST, OPTIONS' },
  },
  {
    from: 'store.py: legacy_store',
    it: 'an event without a project in the path',
    differs: true,
    path: '/api/store/',
    headers: BYTES,
    body: json(MESSAGE),
    status: 404,
  },
  ...['POST', 'GET'].map(
    (asked): RelayRequest => ({
      from: 'store.py: options_response',
      it: `a preflight of ${asked}`,
      ...(asked === 'GET' && { differs: true }),
      method: 'OPTIONS',
      path: 'store/',
      key: 'none',
      headers: {
        'access-control-request-method': asked,
        'access-control-request-headers': 'X-Sentry-Auth',
      },
      status: 204,
      answer: {
        'access-control-allow-methods': 'POST, OPTIONS',
        'access-control-allow-headers': 'X-Sentry-Auth',
      },
    }),
  ),
];

const RELEASE = 'b1c2d3e4';
const CSP = {
  'csp-report': { 'document-uri': 'https://a.example/', 'blocked-uri': 'inline', 'status-code': 200 },
};
const CHAIN = { 'served-certificate-chain': ['-----BEGIN CERTIFICATE-----\nABC\n-----END CERTIFICATE-----'] };
const EXPECT_CT = {
  'expect-ct-report': { hostname: 'a.example', port: 443, scts: [{ version: 1 }], ...CHAIN },
};
const STAPLE = { 'expect-staple-report': { hostname: 'a.example', 'cert-status': 'REVOKED', ...CHAIN } };
const PINS = {
  hostname: 'a.example',
  'include-subdomains': false,
  'known-pins': ['pin-sha256="a="'],
  ...CHAIN,
};
const VIOLATION = { type: 'csp-violation', age: 10, body: { blockedURL: 'inline', disposition: 'enforce' } };
const DEPRECATION = { type: 'deprecation', age: 10, body: { id: 'websql', lineNumber: 1 } };

const report = (
  from: string,
  it: string,
  payload: unknown,
  contentType: string,
  more: Partial<RelayRequest> = {},
): RelayRequest => ({
  from: `security_report.py: ${from}`,
  it,
  path: 'security/',
  key: 'query',
  query: `&sentry_release=${RELEASE}&sentry_environment=production`,
  headers: { 'content-type': contentType, origin: 'http://valid.example' },
  body: json(payload),
  status: 200,
  stored: [payload]
    .flat()
    .map(
      (one): Stored => ['raw_security', one, { sentry_release: RELEASE, sentry_environment: 'production' }],
    ),
  ...more,
});

const SECURITY: readonly RelayRequest[] = [
  ...Object.entries({ CSP, 'Expect-CT': EXPECT_CT, 'Expect-Staple': STAPLE, 'key pins': PINS }).map(
    ([name, payload]) =>
      report('security_report', `a report of ${name}, as JSON`, payload, 'application/json'),
  ),
  report('security_report_with_processing', 'CSP, with a charset', CSP, 'application/json; charset=utf-8'),
  report(
    'csp_violation_reports_with_processing',
    'a list of violations',
    [VIOLATION, { ...VIOLATION, age: 0 }],
    'application/reports+json; charset=utf-8',
  ),
  report(
    'deprication_reports_with_processing',
    'a list with a report that is not about CSP',
    [VIOLATION, DEPRECATION],
    'application/reports+json; charset=utf-8',
    { differs: true },
  ),
  report(
    'adds_origin_header',
    'CSP: the origin of the request is not stored',
    CSP,
    'application/csp-report',
    {
      differs: true,
    },
  ),
  ...['application/expect-ct-report', 'application/expect-staple-report'].map((type) =>
    report('(security_report.rs, no test)', `a report of the type ${type}`, EXPECT_CT, type, {
      differs: true,
      status: 415,
      stored: [],
    }),
  ),
  report(
    'security_report_expose_headers',
    'a text in place of a report',
    '',
    'application/json; charset=utf-8',
    {
      differs: true,
      status: 400,
      stored: [],
    },
  ),
  {
    from: 'security_report.py: security_report_preflight',
    it: 'a preflight of a report',
    differs: true,
    method: 'OPTIONS',
    path: 'security/',
    key: 'query',
    headers: {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type',
      'x-forwarded-proto': 'https',
    },
    status: 204,
    answer: {
      'access-control-allow-methods': 'POST, OPTIONS',
      'access-control-allow-headers': 'content-type',
    },
  },
];

const UPLOAD = { 'content-type': 'multipart/form-data; boundary=x' };
const FILE =
  '--x\r\ncontent-disposition: form-data; name="a"; filename="a.txt"\r\n\r\nheavens no\r\n--x--\r\n';

/** A request to an address that sluice does not serve. */
const notFound = (from: string, path: string, more: Partial<RelayRequest> = {}): RelayRequest => ({
  from,
  it: `a request to ${path}`,
  path,
  headers: UPLOAD,
  body: FILE,
  status: 404,
  ...more,
});

/** The same, where Relay serves the address. */
const notServed: typeof notFound = (from, path, more) => ({ ...notFound(from, path, more), differs: true });
const GET = { method: 'GET', key: 'none' } as const;

const NOT_SERVED: readonly RelayRequest[] = [
  notServed('attachments.py: mixed_attachments_with_processing and others', `events/${ID}/attachments/`),
  notServed('minidump.py: minidump and others', 'minidump/', {
    answer: { 'x-sentry-error': 'a minidump is taken as an attachment in an envelope alone' },
  }),
  notServed('minidump.py: minidump_raw', 'minidump', { headers: BYTES, body: 'MDMP content' }),
  notServed('nel.py: nel_converted_to_logs', 'nel/', { headers: JSON_TYPE, body: '[]' }),
  notServed('monitors.py: monitor_endpoint_get_with_processing', `cron/nightly/${DASHED}`, {
    method: 'GET',
    query: '?status=ok',
  }),
  notServed('monitors.py: monitor_post_json_body and others', 'cron/nightly', {
    headers: JSON_TYPE,
    body: '{"status":"in_progress"}',
  }),
  notServed('heroku_logs.py: heroku_logs', 'integration/heroku/logs', {
    headers: { 'content-type': 'application/logplex-1' },
    body: '83 <40>1 2012-11-30T06:45:29+00:00 host app web.3 - State changed from starting to up',
  }),
  notServed('vercel_logs.py: vercel_logs_json_array, ndjson', 'integration/vercel/logs', {
    headers: JSON_TYPE,
    body: '[{"id":"1","message":"a line"}]',
  }),
  notServed('upload.py: forward_create and others', 'upload/', {
    headers: { 'tus-resumable': '1.0.0', 'upload-length': '11' },
    body: '',
  }),
  ...['/api/relay/healthcheck/live/', '/api/0/relays/live/'].map((path) =>
    notServed('healthchecks.py: live, external_live, readiness', path, GET),
  ),
  ...['/api/foo', '/api/foo/bar'].map((path) => notServed('forwarding.py: forwarding_routes', path, GET)),
  ...['/', '/foo', '/foo/bar', '/api/'].map((path) =>
    notFound('forwarding.py: forwarding_routes', path, GET),
  ),
];

export const OTHER_PATHS: readonly RelayRequest[] = [...STORE, ...SECURITY, ...NOT_SERVED];
