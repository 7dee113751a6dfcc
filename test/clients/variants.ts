/** Who takes part: each SDK by default, and again with the other way of sending traces. */
import { OneShot, Program } from './client.ts';
import type { Variant } from './scenario.ts';
import {
  BROWSER,
  BUN,
  CELERY,
  CLI,
  COMMANDS,
  DENO,
  DJANGO,
  FASTAPI,
  GO,
  JAVA,
  NATIVE,
  NODE,
  PAGES,
  PYTHON,
  REACT,
  RUBY,
  RUST,
} from './sdks.ts';

const program =
  (command: readonly string[], env: Record<string, string> = {}) =>
  (dsn: string): Program =>
    new Program(command, { DSN: dsn, ...env });
const lifecycle = (value: 'static' | 'stream'): Record<string, string> => ({ TRACE_LIFECYCLE: value });

export const JAVASCRIPT: readonly Variant[] = [
  { title: 'Node', sdk: NODE, traces: 'span', open: program(COMMANDS.node) },
  {
    title: 'Node with transactions',
    sdk: NODE,
    traces: 'transaction',
    open: program(COMMANDS.node, lifecycle('static')),
  },
  { title: 'Browser', sdk: BROWSER, traces: 'span', open: (dsn, pages) => pages.open(PAGES.browser, dsn) },
  {
    title: 'Browser with transactions',
    sdk: BROWSER,
    traces: 'transaction',
    open: (dsn, pages) => pages.open(PAGES.browser, dsn, 'static'),
  },
];

const framework = (sdk: typeof DJANGO): Variant => ({
  title: `Python with ${sdk.host?.title}`,
  sdk,
  traces: 'transaction',
  open: program(COMMANDS.frameworks, { FRAMEWORK: sdk.host?.title.toLowerCase() ?? '' }),
});

export const OTHERS: readonly Variant[] = [
  { title: 'Python', sdk: PYTHON, traces: 'transaction', open: program(COMMANDS.python) },
  {
    title: 'Python with streamed spans',
    sdk: PYTHON,
    traces: 'span',
    open: program(COMMANDS.python, lifecycle('stream')),
  },
  {
    ...framework(DJANGO),
    ownSpans: ['django.db.close_old_connections', 'django.db.reset_queries'],
  },
  framework(FASTAPI),
  { ...framework(CELERY), ownSpans: ['work'] },
  { title: 'Bun', sdk: BUN, traces: 'span', open: program(COMMANDS.bun) },
  { title: 'Deno', sdk: DENO, traces: 'transaction', open: program(COMMANDS.deno) },
  { title: 'React', sdk: REACT, traces: 'span', open: (dsn, pages) => pages.open(PAGES.react, dsn) },
  // Debian's version has no logs, and cuts messages after 8 KiB.
  {
    title: 'Ruby',
    sdk: RUBY,
    traces: 'transaction',
    unable: (step) => step.do === 'log' || ('text' in step && step.text.length > 8_000),
    open: program(COMMANDS.ruby),
  },
  {
    title: 'sentry-cli',
    sdk: CLI,
    traces: 'transaction',
    unable: (step) => step.do !== 'message',
    open: (dsn) => new OneShot(COMMANDS.cli, { SENTRY_DSN: dsn }),
  },
  { title: 'Go', sdk: GO, traces: 'transaction', open: program(COMMANDS.go) },
  { title: 'Java', sdk: JAVA, traces: 'transaction', open: program(COMMANDS.java) },
  {
    title: 'Java whose JDK repeats no request in silence',
    sdk: JAVA,
    traces: 'transaction',
    open: program(COMMANDS.javaWithoutRetry),
  },
  { title: 'Rust', sdk: RUST, traces: 'transaction', open: program(COMMANDS.rust) },
  {
    title: 'Native',
    sdk: NATIVE,
    traces: 'transaction',
    unable: (step) => step.do === 'log' || step.do === 'trace',
    open: program(COMMANDS.native),
  },
];
