// A page with an unmodified @sentry/browser: reports an error on a click, records its session. Bundled by the test.
import * as Sentry from '@sentry/browser';

const replay = Sentry.replayIntegration({
  maskAllText: false,
  minReplayDuration: 0,
  flushMinDelay: 500,
  flushMaxDelay: 1_000,
});
const query = new URLSearchParams(location.search);
// The SDK would send with another frame's fetch where the page's own looks wrapped.
const { instrumentedFetch } = window;
Sentry.init({
  ...(instrumentedFetch && { transport: (options) => Sentry.makeFetchTransport(options, instrumentedFetch) }),
  dsn: query.get('dsn'),
  integrations: [replay, Sentry.browserTracingIntegration()],
  tracesSampleRate: 1,
  enableLogs: true,
  ...(query.has('lifecycle') && { traceLifecycle: query.get('lifecycle') }),
  replaysSessionSampleRate: 1,
  replaysOnErrorSampleRate: 1,
  release: 'page@1.0.0',
});
window.replayId = () => replay.getReplayId();
window.report = () => Sentry.captureException(new RangeError('button pressed too hard'));
window.flushReplay = () => replay.flush();
window.trace = async () => {
  const trace = Sentry.startSpan({ name: 'press', op: 'ui.action', forceTransaction: true }, (span) => {
    Sentry.startSpan({ name: 'price', op: 'compute' }, () => undefined);
    return span.spanContext().traceId;
  });
  await Sentry.flush(10_000);
  return trace;
};

const PRIVATE = {
  email: 'bob.o.private@customer.example.com',
  card: '4242 4242 4242 4242',
  ip: '198.51.100.77',
  password: 'hunter2-in-plain',
  cookie: 'session-cookie-value',
  token: 'tok_4f8a99',
};
// Private data in every place where the SDK takes it from the page or the page gives it, with a mark beside it.
window.reportPrivate = async (mark) => {
  const { email, card, ip, password, cookie, token } = PRIVATE;
  const form = JSON.stringify({ password, note: `card ${card} ${mark}` });
  Sentry.setUser({ id: 'u-77', email, ip_address: ip });
  Sentry.setContext('login', { password, cookies: { session: cookie }, attempts: 3 });
  Sentry.setExtra('form', form);
  Sentry.setTag('api_key', token);
  history.pushState({}, '', `${location.href}&access_token=${token}&mark=${mark}`);
  console.warn(`login of ${email}`, { password, card });
  await fetch(`/price?token=${token}&of=${encodeURIComponent(email)}`, {
    headers: { authorization: `Bearer ${token}` },
  });
  document.getElementById('p').textContent =
    `${mark}: ${email} at ${ip} paid with ${card}, ${form}, session=${cookie}`;
  Sentry.logger.info(`login of ${email} ${mark}`, { password, 'client.address': ip });
  Sentry.startSpan(
    {
      name: `pay ${mark}`,
      op: 'ui.action',
      forceTransaction: true,
      attributes: { 'client.address': ip, 'http.request.header.cookie': cookie },
    },
    () =>
      Sentry.startSpan({ name: `SELECT * FROM users WHERE email = '${email}'`, op: 'db' }, () => undefined),
  );
  Sentry.captureException(new Error(`payment of ${email} from ${ip} with ${card} failed: ${mark}`));
  await Promise.all([Sentry.flush(10_000), replay.flush()]);
  return Object.values(PRIVATE);
};
