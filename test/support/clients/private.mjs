// An application with an unmodified @sentry/node that reports private data in every place where SDKs put it. Prints what must not be
// stored, as JSON.
import * as Sentry from '@sentry/node';

const PRIVATE = {
  email: 'bob.o.private@customer.example.com',
  card: '4242 4242 4242 4242',
  ip: '198.51.100.77',
  password: 'hunter2-in-plain',
  cookie: 'session-cookie-value',
  token: 'tok_4f8a99',
};
const { email, card, ip, password, cookie, token } = PRIVATE;

Sentry.init({
  dsn: process.env.DSN,
  tracesSampleRate: 1,
  enableLogs: true,
  traceLifecycle: process.env.LIFECYCLE,
  ...(process.env.FORWARDED && {
    transportOptions: { headers: { 'x-forwarded-for': process.env.FORWARDED } },
  }),
});
Sentry.setUser({ id: 'u-77', email, ip_address: process.env.USER_IP ?? ip });
Sentry.setContext('login', { password, attempts: 3 });
Sentry.setExtra('form', JSON.stringify({ password, note: `card ${card}` }));
Sentry.setTag('api_key', token);
Sentry.addBreadcrumb({ category: 'fetch', data: { url: `https://shop.example.com/?token=${token}&page=2` } });
Sentry.addEventProcessor((event) => ({
  ...event,
  request: {
    url: 'https://shop.example.com/login',
    headers: { cookie: `session=${cookie}`, authorization: `Bearer ${token}`, accept: 'text/html' },
    cookies: { session: cookie },
    data: `{"user":"${email}","password":"${password}","cut":"...`,
    query_string: `access_token=${token}&page=2`,
  },
}));
Sentry.captureException(new Error(`payment of ${email} from ${ip} with ${card} failed`));
Sentry.startSpan(
  {
    name: 'GET /pay',
    op: 'http.server',
    attributes: { 'client.address': ip, 'http.request.header.cookie': cookie, kept: 'yes' },
  },
  () => Sentry.startSpan({ name: `SELECT * FROM users WHERE email = '${email}'`, op: 'db' }, () => undefined),
);
Sentry.logger.info(`login of ${email}`, { password, kept: 'yes' });
const flushed = await Sentry.flush(10_000);
console.log(JSON.stringify({ flushed, private: Object.values(PRIVATE) }));
