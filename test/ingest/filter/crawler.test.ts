import { describe, expect, it } from 'vitest';
import { cases, verdictOn } from './encodings.ts';

const SAFARI = 'AppleWebKit/537.36 (KHTML, like Gecko)';

const CRAWLERS = [
  'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
  `Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) ${SAFARI} Chrome/140.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)`,
  'Googlebot-Image/1.0',
  'Mediapartners-Google',
  'AdsBot-Google (+http://www.google.com/adsbot.html)',
  'FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)',
  `Mozilla/5.0 (X11; Linux x86_64; Storebot-Google/1.0) ${SAFARI} Chrome/79.0.3945.88 Safari/537.36`,
  'Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)',
  `Mozilla/5.0 ${SAFARI} Chrome/100.0.4896.127 Safari/537.36 BingPreview/1.0b`,
  'Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)',
  'Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)',
  'Sogou web spider/4.0(+http://www.sogou.com/docs/help/webmasters.htm#07)',
  'facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)',
  'facebookcatalog/1.0',
  'meta-externalagent/1.1 (+https://developers.facebook.com/docs/sharing/webmasters/crawler)',
  'ia_archiver (+http://www.alexa.com/site/help/webmasters; crawler@alexa.com)',
  'Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)',
  'Slack-ImgProxy (+https://api.slack.com/robots)',
  'Slack-ImgProxy 0.19 (+https://api.slack.com/robots)',
  'Sogou Pic Spider/3.0(+http://www.sogou.com/docs/help/webmasters.htm#07)',
  `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${SAFARI} Chrome/84.0 Safari/537.36 Calypso AppCrawler`,
  'Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)',
  `Mozilla/5.0 (X11; Linux x86_64) ${SAFARI} Chrome/61.0.3163.100 Chrome/61.0.3163.100 Safari/537.36 PingdomPageSpeed/1.0 (pingbot/2.0; +http://www.pingdom.com/)`,
  'lyticsbot-external',
  'AWS Security Scanner',
  `Mozilla/5.0 (X11; Linux x86_64; HubSpot Crawler; web-crawlers@hubspot.com) ${SAFARI} Chrome/116.0 Safari/537.36`,
  'Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 (compatible; Bytespider; spider-feedback@bytedance.com)',
  'Better Uptime Bot Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Chrome/96.0 Safari/537.36',
  'Mozilla/5.0 (compatible; Cloudflare-Healthchecks/1.0; +https://www.cloudflare.com/; healthcheck-id: 4ced)',
  `Mozilla/5.0 (X11; Linux x86_64) ${SAFARI} Chrome/117.0.0.0 Safari/537.36 GTmetrix`,
  'Mozilla/5.0 (compatible; BrightEdgeOnCrawl/1.0)',
  'ELB-HealthChecker/2.0',
  'Mozilla/5.0 (compatible; Yeti/1.1; +http://naver.me/spd)',
  `Mozilla/5.0 ${SAFARI}; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)`,
  'CCBot/2.0 (https://commoncrawl.org/faq/)',
  `Mozilla/5.0 ${SAFARI}; compatible; OAI-SearchBot/1.0; +https://openai.com/searchbot`,
  `Mozilla/5.0 ${SAFARI}; compatible; GPTBot/1.2; +https://openai.com/gptbot)`,
  `Mozilla/5.0 ${SAFARI}; compatible; PerplexityBot/1.0; +https://perplexity.ai/perplexitybot)`,
  'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)',
  'DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)',
  'Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)',
  'Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)',
  'Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)',
  'Twitterbot/1.0',
  'LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)',
  'Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)',
  'TelegramBot (like TwitterBot)',
  'Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)',
  'Mozilla/5.0 (compatible; PetalBot;+https://webmaster.petalsearch.com/site/petalbot)',
  'Mozilla/5.0 (compatible; 360Spider)',
  'Mozilla/5.0 (Linux; Android 12) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Mobile Safari/537.36; a-spider',
];

const OTHERS = [
  `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${SAFARI} Chrome/140.0.0.0 Safari/537.36`,
  `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${SAFARI} Chrome/139.0.0.0 Safari/537.36 Edg/139.0.0.0`,
  `Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) ${SAFARI} Chrome/138.0.0.0 Safari/537.36`,
  `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${SAFARI} Chrome/126.0.0.0 Safari/537.36 OPR/112.0.0.0`,
  `Mozilla/5.0 (Linux; Android 14; SM-S921B) ${SAFARI} SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36`,
  `Mozilla/5.0 (Linux; Android 10; K) ${SAFARI} Chrome/127.0.0.0 Mobile Safari/537.36`,
  `Mozilla/5.0 (Linux; Android 10; CUBOT_X30) ${SAFARI} Chrome/120.0.0.0 Mobile Safari/537.36`,
  `Mozilla/5.0 (Linux; Android 11; CUBOT KINGKONG 5 Pro Build/RP1A) ${SAFARI} Chrome/110.0.0.0 Mobile Safari/537.36`,
  `Mozilla/5.0 (Linux; U; Android 9; en-us; CUBOT) ${SAFARI} Version/4.0 Chrome/71.0.3578.141 Mobile Safari/537.36`,
  `Mozilla/5.0 (Linux; Android 13; Pixel 7; wv) ${SAFARI} Version/4.0 Chrome/119.0 Mobile Safari/537.36`,
  `Mozilla/5.0 (Linux; Android 12; Redmi Note 11) ${SAFARI} Chrome/96.0 Mobile Safari/537.36 XiaoMi/MiuiBrowser/14.4`,
  'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15',
  'Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1',
  'Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/120.0 Mobile/15E148 Safari/604.1',
  'Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) FxiOS/125.0 Mobile/15E148 Safari/605.1.15',
  'Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0',
  'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:130.0) Gecko/20100101 Firefox/130.0',
  'Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko',
  'Opera/9.80 (Android; Opera Mini/36.2/191.249; U; en) Presto/2.12.423 Version/12.16',
  'Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [FBAN/FBIOS;FBAV/450.0.0.38.108;FBBV/564431005;FBDV/iPhone14,5]',
  `Mozilla/5.0 (Linux; Android 13; SM-A536B; wv) ${SAFARI} Chrome/118.0 Mobile Safari/537.36 [FB_IAB/FB4A;FBAV/440.0.0.30.107;]`,
  'Mozilla/5.0 (iPhone; CPU iPhone OS 16_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Instagram 300.0.0.20.110 (iPhone13,2)',
  `Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) ${SAFARI} Slack/4.38.125 Chrome/124.0.6367.243 Electron/30.1.0 Safari/537.36`,
  `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${SAFARI} discord/1.0.9163 Chrome/124.0 Electron/30.2.0 Safari/537.36`,
  'Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 MicroMessenger/8.0.44 NetType/WIFI',
  `Mozilla/5.0 ${SAFARI}; compatible; ChatGPT-User/1.0; +https://openai.com/bot`,
  // Requests of a person's or a company's own applications, by names that crawlers have too.
  'Slackbot 1.0 (+https://api.slack.com/robots)',
  'Mattermost-Bot/1.1',
  `Mozilla/5.0 (Linux; U; Android 10; zh-cn; LYA-AL00) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/57.0.2987.108 Mobile Safari/537.36 SogouMSE,SogouMobileBrowser/5.22.8`,
  'Mozilla/5.0 (iPhone; CPU iPhone OS 13_3 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 SogouSearch Ios1.0 version3.2',
  'SentryUptimeBot/1.0 (+http://docs.sentry.io/product/alerts/uptime-monitoring/)',
  'sentry.javascript.node/10.78.0',
  'sentry.python/2.30.0',
  'sentry-ruby/5.17.3',
  'sentry.php/4.9.0',
  'sentry.robot/1.0 bot/2',
  'curl/8.5.0',
  'curl/8.5.0 (status bot)',
  'python-requests/2.32.3 release-bot',
  'node/20.1 (deploy bot)',
  'Mozilla/5.0 (Macintosh) Slack/4.38.125 (team bot)',
  'Mozilla/5.0 (iPhone) [FBAN/FBIOS;FBDV/a-bot;FBAV/450.0]',
  'python-requests/2.32.3',
  'Python-urllib/3.12',
  'aiohttp/3.9.5',
  'node',
  'node-fetch/1.0 (+https://github.com/bitinn/node-fetch)',
  'undici',
  'axios/1.7.2',
  'Go-http-client/1.1',
  'okhttp/4.12.0',
  'Java/17.0.8',
  'Dalvik/2.1.0 (Linux; U; Android 13; Pixel 6 Build/TQ3A)',
  'GuzzleHttp/7',
  'Ruby',
  'Faraday v2.9.0',
  'Dart/3.3 (dart:io)',
  'PostmanRuntime/7.39.0',
  'MyApp/3.1 CFNetwork/1496.0.7 Darwin/23.5.0',
  'Robotics Studio/4.0 (botany; spiderweb)',
  'robotframework',
  'Mozilla/5.0 (compatible; Botswana; bottom)',
];

const withAgent = (agent: unknown) => ({ request: { headers: { 'User-Agent': agent } } });
const GOOGLEBOT = CRAWLERS[0] as string;
const CHROME = OTHERS[0] as string;

describe('the crawler filter', () => {
  it.each(CRAWLERS)('takes %s', (agent) => {
    for (const text of cases(agent)) {
      expect(verdictOn(withAgent(text))).toBe('crawler');
      expect(verdictOn(withAgent(text), { type: 'transaction' })).toBe('crawler');
    }
  });

  it.each(OTHERS)('leaves %s', (agent) => {
    for (const text of cases(agent)) expect(verdictOn(withAgent(text))).toBeUndefined();
  });

  it.each(['bot', 'bots', 'Spider'])('takes any word ending in %s before an end of a word', (word) => {
    for (const end of ['', ' ', '/1.0', '; x', ')']) {
      expect(verdictOn(withAgent(`my${word}${end}`)), `my${word}${end}`).toBe('crawler');
    }
    for (const end of ['s1', '-x', '_x', '.html', ',x', ':', 'tle', '@example.com']) {
      expect(verdictOn(withAgent(`my${word}${end}`)), `my${word}${end}`).toBeUndefined();
    }
  });

  it('reads headers as an object, as pairs and as lists of values, in any case of the name', () => {
    for (const headers of [
      { 'user-agent': GOOGLEBOT },
      { Accept: '*/*', 'USER-AGENT': GOOGLEBOT },
      [
        ['Accept', '*/*'],
        ['User-Agent', GOOGLEBOT],
      ],
      { 'User-Agent': [GOOGLEBOT] },
      [['user-agent', [GOOGLEBOT]]],
    ]) {
      expect(verdictOn({ request: { headers } }), JSON.stringify(headers)).toBe('crawler');
    }
  });

  it('looks at no other header and no other field', () => {
    const headers = { 'User-Agent': CHROME, From: 'googlebot(at)googlebot.com', 'X-Agent': GOOGLEBOT };
    expect(verdictOn({ message: GOOGLEBOT, tags: { bot: GOOGLEBOT }, request: { headers } })).toBeUndefined();
  });

  it("takes the request's own browser agent when the payload has none", () => {
    for (const payload of [
      {},
      { request: { headers: {} } },
      withAgent(''),
      withAgent(null),
      { request: [] },
    ]) {
      expect(verdictOn(payload, { 'user-agent': GOOGLEBOT })).toBe('crawler');
      expect(verdictOn(payload, { 'user-agent': CHROME })).toBeUndefined();
      expect(verdictOn(payload, { 'user-agent': 'Googlebot-Image/1.0' })).toBeUndefined();
    }
  });

  it("prefers the payload's agent to the request's", () => {
    expect(verdictOn(withAgent(CHROME), { 'user-agent': GOOGLEBOT })).toBeUndefined();
    expect(verdictOn(withAgent(GOOGLEBOT), { 'user-agent': CHROME })).toBe('crawler');
  });
});
