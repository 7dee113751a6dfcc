// An application with an unmodified @sentry/node. Prints the ids of what it sent, as JSON.
import * as Sentry from '@sentry/node';

Sentry.init({
  dsn: process.env.DSN,
  tracesSampleRate: 1,
  enableLogs: true,
  ...(process.env.TRACE_LIFECYCLE && { traceLifecycle: process.env.TRACE_LIFECYCLE }),
  release: 'shop@1.2.3',
  environment: 'test',
});

const exception = Sentry.captureException(new TypeError('cart is undefined'));
const message = Sentry.captureMessage(`big ${'lorem ipsum '.repeat(4_000)}`, 'warning');
let trace;
Sentry.startSpan({ name: 'GET /checkout', op: 'http.server' }, (span) => {
  trace = span.spanContext().traceId;
  Sentry.startSpan({ name: 'select cart', op: 'db' }, () => undefined);
});
Sentry.logger.info('order placed', { order: 42 });
const flushed = await Sentry.flush(10_000);
console.log(JSON.stringify({ exception, message, trace, flushed }));
