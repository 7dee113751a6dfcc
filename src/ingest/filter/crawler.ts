/**
 * Filter of errors from crawlers, which are programs that read the web by themselves. The payload
 * usually names the User-Agent of the page's visitor. If no payload names one, the request's own
 * User-Agent counts, provided that it is a browser's: a browser SDK sends its requests from the
 * visitor's browser. The package `isbot` is not used, because it also calls curl, python-requests,
 * node and other server clients bots. Errors that server SDKs report name such clients, and are
 * wanted.
 */
import { anyOf, type Filter, type RequestFacts } from './payload.ts';

const CRAWLERS = [
  'Mediapartners-Google',
  'AdsBot-Google',
  'Googlebot',
  'FeedFetcher-Google',
  'Storebot-Google',
  'BingBot',
  'BingPreview',
  'Baiduspider',
  'Slurp',
  'Sogou',
  'facebookexternalhit',
  'facebookcatalog',
  'meta-externalagent',
  'ia_archiver',
  'Slackbot-LinkExpanding',
  'Slack-ImgProxy',
  'Calypso AppCrawler',
  'pingdom',
  'lyticsbot',
  'AWS Security Scanner',
  'HubSpot Crawler',
  'Bytespider',
  'Better Uptime',
  'Cloudflare-Healthchecks',
  'GTmetrix',
  'BrightEdgeOnCrawl',
  'ELB-HealthChecker',
  'naver.me/spd',
  'ClaudeBot',
  'CCBot',
  'OAI-SearchBot',
  'GPTBot',
  'PerplexityBot',
  'Applebot',
  'DuckDuckBot',
];

const NAMED = anyOf(CRAWLERS);
/** Any word that ends in bot, bots or spider, but not CUBOT, which makes phones. */
const WORD = /(?:(?<!\bcu)bots?|spider)(?=[ /;)]|$)/i;
/** User-Agents of server clients, which are no crawlers. */
const SERVER = /^(?:sentry[./-]|curl\/|python-requests\/|node(?![a-z]))/i;
/**
 * User-Agents that are wanted although they look like a crawler's: in-app browsers, a person's own
 * assistant, uptime checks that were asked for, and the requests that chat servers send to a
 * company's own application. Sogou's browsers are wanted, too, but its crawler is not.
 */
const WANTED =
  /\bFBA[NV]\/|\bSlack\/|\bSlackbot 1\.|\bMattermost-Bot\/|\bSogou(?:MSE|MobileBrowser|Search)\b|ChatGPT-User|SentryUptimeBot/i;

const isCrawler = (userAgent: string): boolean =>
  (WORD.test(userAgent) || NAMED.test(userAgent)) && !SERVER.test(userAgent) && !WANTED.test(userAgent);

/**
 * Whether the request's own User-Agent is a crawler's. It counts only if it begins like a
 * browser's, as many crawlers' do, and only when no payload names one.
 */
const isSuspect = ({ 'user-agent': agent }: RequestFacts): boolean =>
  /^mozilla\//i.test(agent) && isCrawler(agent);

const WORDS = ['bot', 'bots', 'spider'];
/** Characters that may follow one of WORDS in JSON text. A backslash begins an escaped slash. */
const WORD_ENDS = [' ', '/', '\\', ';', ')', '"'];

export const crawler: Filter = {
  name: 'crawler',
  itemTypes: ['event', 'transaction'],
  needles: [
    ...CRAWLERS.map((name) => name.toLowerCase().replace(/\/.*/, '')),
    ...WORDS.flatMap((word) => WORD_ENDS.map((end) => word + end)),
  ],
  judgeAgent: (agent, request) => (agent === '' ? isSuspect(request) : isCrawler(agent)),
};
