// An application with an unmodified @sentry/node that logs and fails in turns. Prints the ids of its exceptions, as JSON.
import * as Sentry from '@sentry/node';

Sentry.init({ dsn: process.env.DSN, enableLogs: true });

const exceptions = [];
let logs = 0;
for (let i = 0; i < 4; i++) {
  Sentry.logger.info(`order ${i}`);
  logs++;
  await Sentry.flush(10_000);
  if (i > 0) exceptions.push(Sentry.captureException(new Error(`order ${i} failed`)));
  await Sentry.flush(10_000);
}
console.log(JSON.stringify({ exceptions, logs }));
