/**
 * Events that the tests of Relay's filters are about (docs/relay-tests.md names the files), and the
 * filter of sluice that takes each; undefined: none.
 */
import type { FilterName } from '../../../src/lib/filter-names.ts';

export type FilterCase = {
  /** File and function of Relay's tests. */
  from: string;
  /** Set where sluice does something else than the test expects (docs/relay-tests.md says why). */
  differs?: true;
  type?: 'event' | 'transaction' | 'replay_event' | 'log' | 'span';
  payload: unknown;
  /** The User-Agent of the request. */
  agent?: string;
  /** The filters of the project; without them all. */
  filters?: readonly FilterName[];
  taken: FilterName | undefined;
};

type Expected = Pick<FilterCase, 'from' | 'taken'>;
const OFF = { filters: [], taken: undefined } as const;

// ---- extensions of browsers ----

const withMessage = (value: string): object => ({ exception: { values: [{ value }, {}, {}] } });
const withSource = (abs_path: string): object => {
  const frames = [{ abs_path }, { abs_path: '<anonymous>' }, { abs_path: '<anonymous>' }];
  return { exception: { values: [{ stacktrace: { frames } }, {}, {}] } };
};
const BY_SOURCE: Expected = {
  from: 'browser_extensions.rs: filter_known_browser_extension_source',
  taken: 'browser-extension',
};
const BY_MESSAGE: Expected = {
  from: 'browser_extensions.rs: filter_known_browser_extension_values',
  taken: 'browser-extension',
};
const FRAMES = [{ filename: 'a/different.file' }, { filename: 'chrome-extension://blablabla' }];
const FROM_EXTENSION = { exception: { values: [{ stacktrace: { frames: FRAMES } }] } };
const KASPERSKY = 'https://fscr.kaspersky-labs.com/B-9B72-7B7/main.js';

const EXTENSIONS: readonly FilterCase[] = [
  ...[
    'https://graph.facebook.com/',
    'https://connect.facebook.net/en_US/sdk.js',
    'https://eatdifferent.com.woopra-ns.com/main.js',
    'https://static.woopra.com/js/woopra.js',
    'chrome-extension://my-extension/or/something',
    'chrome://my-extension/or/something',
    'moz-extension://my-extension/or/something',
    'safari-extension://my-extension/or/something',
    'safari-web-extension://my-extension/or/something',
    '127.0.0.1:4001/isrunning',
    'webappstoolbarba.texthelp.com/',
    'http://metrics.itunes.apple.com.edgesuite.net/itunespreview/itunes/browser:firefo',
    KASPERSKY,
    'webkit-masked-url:',
  ].map((source) => ({ ...BY_SOURCE, payload: withSource(source) })),
  ...[
    'a call of conduitPage',
    "null is not an object (evaluating 'elt.parentNode')",
    'a fault of top.GLOBALS',
    'a fault of originalCreateNotification',
    'canvas.contentDocument',
    'MyApp_RemoveAllHighlights',
    'http://tt.epicplay.com/a/path',
    "Can't find variable: ZiteReader, it says",
    'jigsaw is not defined and more',
    'ComboSearch is not defined',
    'http://loading.retry.widdit.com/some/error',
    'atomicFindClose and more',
    'a fault of fb_xd_fragment',
    'a fault: bmi_SafeAddOnload, again',
    'a fault! EBCallBackMessageReceived',
    'a fault _gCrWeb',
    'conduitPage',
    'plugin.setSuspendState is not a function',
    'Extension context invalidated',
    'a fault webkit-masked-url: and more',
    "TypeError: can't access dead object because it is dead",
  ].map((message) => ({ ...BY_MESSAGE, payload: withMessage(message) })),
  ...[withSource('https://some/resonable/source.js'), withMessage('an ordinary message')].map((payload) => ({
    from: 'browser_extensions.rs: dont_filter_unkown_browser_extension',
    payload,
    taken: undefined,
  })),
  ...[withSource(KASPERSKY), withMessage('fb_xd_fragment')].map((payload) => ({
    from: 'browser_extensions.rs: dont_filter_when_disabled',
    payload,
    ...OFF,
  })),
  {
    from: 'filters.py: browser_extension_filters_are_applied',
    payload: FROM_EXTENSION,
    taken: 'browser-extension',
  },
  { from: 'filters.py: browser_extension_filters_are_applied', payload: FROM_EXTENSION, ...OFF },
];

// ---- crawlers ----

const withAgent = (agent: string): object => ({ request: { headers: { 'User-Agent': agent } } });
const banned = (agent: string): FilterCase => ({
  from: 'web_crawlers.rs: filter_banned_user_agents',
  payload: withAgent(agent),
  taken: 'crawler',
});
const bannedByRelay = (agent: string): FilterCase => ({ ...banned(agent), differs: true, taken: undefined });
const PERPLEXITY =
  'Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; PerplexityBot/1.0; +https://perplexity.ai/perplexitybot)';

const CRAWLERS: readonly FilterCase[] = [
  ...[
    'Mediapartners-Google',
    'AdsBot-Google',
    'Googlebot',
    'FeedFetcher-Google',
    'Storebot-Google',
    'Mozilla/5.0 (X11; Linux x86_64; Storebot-Google/1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/121.0.0.0 Safari/537.36',
    'BingBot',
    'BingPreview',
    'Baiduspider',
    'Slurp',
    'Sogou',
    'facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)',
    'facebookcatalog/1.0',
    'meta-externalagent/1.1 (+https://developers.facebook.com/docs/sharing/webmasters/crawler)',
    'ia_archiver',
    'bots ',
    'bots;',
    'bots)',
    'spider ',
    'spider;',
    'spider)',
    'Calypso AppCrawler',
    'pingdom',
    'lyticsbot',
    'AWS Security Scanner',
    'Mozilla/5.0 (Linux; Android 6.0.1; Calypso AppCrawler Build/MMB30Y; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/53.0.2785.124 Mobile Safari/537.36',
    'Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)',
    'Slack-ImgProxy 0.19 (+https://api.slack.com/robots)',
    'Twitterbot/1.0',
    'FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)',
    'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
    'AdsBot-Google (+http://www.google.com/adsbot.html)',
    'Mozilla/5.0 (compatible; HubSpot Crawler; web-crawlers@hubspot.com)',
    'Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 (compatible; Bytespider; spider-feedback@bytedance.com)',
    'Better Uptime Bot Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/74.0.3729.169 Safari/537.36',
    'Mozilla/5.0 (compatible;Cloudflare-Healthchecks/1.0;+https://www.cloudflare.com/; healthcheck-id: 0d1ca23e292c8c14)',
    'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/117.0.0.0 Safari/537.36 GTmetrix',
    'Mozilla/5.0 (compatible; BrightEdgeOnCrawl/1.0; +http://www.oncrawl.com)',
    'ELB-HealthChecker/2.0',
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko; compatible; Yeti/1.1; +https://naver.me/spd) Chrome/127.0.0.0 Safari/537.36',
    'Mozilla/5.0; ClaudeBot',
    'Mozilla/5.0; CCBot',
    '; OAI-SearchBot/1.0; +https://openai.com/searchbot',
    'Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.1; +https://openai.com/gptbot',
    PERPLEXITY,
    'Mozilla/5.0 (Device; OS_version) AppleWebKit/WebKit_version (KHTML, like Gecko)Version/Safari_version [Mobile/Mobile_version] Safari/WebKit_version (Applebot/Applebot_version; +http://www.apple.com/go/applebot)',
    'DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)',
  ].map(banned),
  ...['facebook', 'meta-externalfetcher/1.1', 'Slack'].map(bannedByRelay),
  ...[
    'some user agent',
    'IE',
    'ie',
    'opera',
    'safari',
    'APIs-Google (+https://developers.google.com/webmasters/APIs-Google.html)',
    'Mozilla/5.0 (Windows NT 6.1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/41.0.2228.0 Safari/537.36',
    'Slackbot 1.0(+https://api.slack.com/robots)',
    'SentryUptimeBot/1.0 (+http://docs.sentry.io/product/alerts/uptime-monitoring/)',
    'Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; +https://openai.com/bot',
  ].map((agent) => ({
    from: 'web_crawlers.rs: dont_filter_normal_user_agents',
    payload: withAgent(agent),
    taken: undefined,
  })),
  { from: 'web_crawlers.rs: filter_when_disabled', payload: withAgent('Googlebot'), ...OFF },
  { from: 'filters.py: web_crawlers_filter_are_applied', payload: withAgent('BingBot'), taken: 'crawler' },
  { from: 'filters.py: web_crawlers_filter_are_applied', payload: withAgent('BingBot'), ...OFF },
  ...(['log', 'span'] as const).map(
    (type): FilterCase => ({
      from: type === 'log' ? 'ourlogs.py: filters_are_applied_to_logs' : 'spansv2.py: spanv2_inbound_filters',
      differs: true,
      type,
      payload: { items: [] },
      agent: PERPLEXITY,
      taken: undefined,
    }),
  ),
];

// ---- a developer's own machine ----

const withAddress = (ip_address: string): object => ({ user: { ip_address } });
const withUrl = (url: string): object => ({ request: { url } });
const withHeaders = (headers: object, user: unknown = null): object => ({ user, request: { headers } });
const local = (from: string, payloads: readonly object[]): FilterCase[] =>
  payloads.map((payload) => ({ from, payload, taken: 'localhost' }));
const notLocal = (from: string, payloads: readonly object[]): FilterCase[] =>
  payloads.map((payload) => ({ from, payload, taken: undefined }));
const LOCAL_HEADERS = ['Host', 'X-Forwarded-Host'].flatMap((name) =>
  ['localhost:3000', '127.0.0.1:3000', 'localhost'].map((host) => ({ [name]: host })),
);
const LOCAL_REPLAY = { type: 'replay_event', replay_id: 'a', request: { url: 'http://localhost:1200' } };

const LOCAL: readonly FilterCase[] = [
  ...local('localhost.rs: filter_local_ip', ['127.0.0.1', '::1'].map(withAddress)),
  ...notLocal(
    'localhost.rs: dont_filter_non_local_ip',
    ['133.12.12.1', '2001:db8:0:0:0:ff00:42:8329'].map(withAddress),
  ),
  ...notLocal('localhost.rs: dont_filter_missing_ip_or_domains', [{}]),
  ...local(
    'localhost.rs: filter_local_domains',
    ['127.0.0.1', 'localhost', 'foo.localhost', 'foo.bar.baz.localhost'].map((host) =>
      withUrl(`http://${host}:8080/`),
    ),
  ),
  ...notLocal(
    'localhost.rs: dont_filter_non_local_domains',
    [
      'my.dom.com',
      '123.123.123.44',
      'localhost.com',
      'foolocalhost',
      'localhostbar',
      'alocalhostgoesintoabar',
    ].map((host) => withUrl(`http://${host}:8080/`)),
  ),
  ...local('localhost.rs: filter_file_urls', [withUrl('file:///C:/pages/board.html')]),
  ...notLocal('localhost.rs: dont_filter_non_file_urls', [withUrl('http://www.example.com/leaderboard')]),
  ...local(
    'localhost.rs: filter_forwarded_host_header, filter_request_host_header; filters.py: localhost_filter_with_headers',
    LOCAL_HEADERS.map((headers) => withHeaders(headers)),
  ),
  ...local(
    'filters.py: localhost_filter_user_ip_resolved',
    LOCAL_HEADERS.map((headers) => withHeaders(headers, '{{auto}}')),
  ),
  ...local(
    'localhost.rs: filter_request_forwarded_for_header',
    ['127.0.0.1', '::1'].map((address) => withHeaders({ 'X-Forwarded-For': address })),
  ),
  ...notLocal(
    'localhost.rs: filter_request_subdomain_host_header, filter_request_subdomain_forwarded_host_header; filters.py: localhost_filter_no_local_header_ips',
    ['Host', 'X-Forwarded-Host'].flatMap((name) =>
      ['localhost.example.com', 'localhost.example.com:3000', 'example.com'].map((host) =>
        withHeaders({ [name]: host }, { ip_address: null }),
      ),
    ),
  ),
  ...[withAddress('127.0.0.1'), withUrl('http://localhost:8080/')].map((payload) => ({
    from: 'localhost.rs: dont_filter_when_disabled',
    payload,
    ...OFF,
  })),
  {
    from: 'replay_events.py: replay_events_are_filtered',
    differs: true,
    type: 'replay_event',
    payload: LOCAL_REPLAY,
    taken: undefined,
  },
];

export const FILTER_CASES: readonly FilterCase[] = [...EXTENSIONS, ...CRAWLERS, ...LOCAL];

// ---- allowed sites ----

export type OriginCase = {
  from: string;
  differs?: true;
  patterns: readonly string[];
  origin: string;
  isTaken: boolean;
};

const sites = (
  from: string,
  cases: readonly (readonly [string, readonly string[], boolean])[],
): OriginCase[] => cases.map(([origin, patterns, isTaken]) => ({ from, origin, patterns, isTaken }));

export const ORIGIN_CASES: readonly OriginCase[] = [
  ...sites('basic.py: store_allowed_origins_passes; security_report.py: uses_origins', [
    ['http://valid.com', ['*'], false],
    ['http://valid.com', ['http://valid.com'], false],
    ['http://valid.com', ['http://*'], false],
    ['http://valid.com', ['valid.com'], false],
    ['http://valid.com', ['invalid.com'], true],
  ]),
  {
    from: 'basic.py: store_allowed_origins_passes',
    differs: true,
    patterns: [],
    origin: 'http://valid.com',
    isTaken: false,
  },
  ...sites('csp.rs: matches_any_origin', [
    ['http://abc3.com', ['*', 'bbc.com'], false],
    ['http://abc4.com', ['http://*', 'bbc.com'], false],
    ['http://abc.com:82', ['*:82', 'bbc.com'], false],
    ['http://abc.com:83', ['http://*:83', 'bbc.com'], false],
    ['http://abc.com:85', ['*.abc.com:85', 'bbc.com'], false],
    ['http://abc.com:86', ['*.com:86'], false],
    ['http://abc.com:86', ['*.com:86', 'bbc.com'], false],
    ['http://abc.def.ghc.com:87', ['*.com:87'], false],
    ['http://abc.def.ghc.com:88', ['*.ghc.com:88'], false],
    ['http://abc.def.ghc.com:89', ['*.def.ghc.com:89'], false],
    ['http://abc.com:90', ['abc.com', 'bbc.com'], false],
    ['http://abc.com:91', ['abc.com:91', 'bbc.com'], false],
    ['http://abc.com:92', ['http://abc.com:92'], false],
    ['http://abc6.com', ['abc6.com', 'bbc.com'], false],
    ['http://abc7.com', ['bbc.com', 'abc7.com'], false],
    ['http://abc8.com', ['bbc.com', 'abc8.com', 'def'], false],
    ['http://abc9.com', ['http://other.com', 'bbc.com'], true],
    ['http://abc10.com', ['http://*.other.com', 'bbc'], true],
    ['https://abc12.com', ['http://abc12.com', 'bbc.com'], true],
    ['http://abc13.com:80', ['http://abc13.com:8080', 'bbc.com'], true],
    ['http://y:80', ['http://x'], true],
  ]),
  {
    from: 'csp.rs: matches_any_origin',
    differs: true,
    patterns: ['http://abc.com', 'bbc.com'],
    origin: 'http://abc.com:93',
    isTaken: true,
  },
  {
    from: 'csp.rs: matches_any_origin',
    differs: true,
    patterns: ['*.other.com', 'bbc'],
    origin: 'abc11.com',
    isTaken: false,
  },
];

/** Patterns of csp.rs (matches_any_origin, scheme_domain_port) that sluice does not take. */
export const REFUSED_PATTERNS = [
  '*:*',
  '*://*',
  '*://*:*',
  'https://*:*',
  'x.y.z:*',
  '*://x.y.z:*',
  '*://*.x.y.z:*',
  '*://*:8000',
  'http://abc5.com:*',
  'abc.com:*',
  'http://',
] as const;
