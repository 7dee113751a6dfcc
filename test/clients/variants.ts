/** Who takes part: each SDK by default, and again with the other way of sending traces. */
import { Program } from './client.ts';
import type { Variant } from './scenario.ts';
import { BROWSER, COMMANDS, GO, JAVA, NODE, PYTHON, RUST } from './sdks.ts';

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
  { title: 'Browser', sdk: BROWSER, traces: 'span', open: (dsn, pages) => pages.open(dsn, '') },
  {
    title: 'Browser with transactions',
    sdk: BROWSER,
    traces: 'transaction',
    open: (dsn, pages) => pages.open(dsn, 'static'),
  },
];

export const OTHERS: readonly Variant[] = [
  { title: 'Python', sdk: PYTHON, traces: 'transaction', open: program(COMMANDS.python) },
  {
    title: 'Python with streamed spans',
    sdk: PYTHON,
    traces: 'span',
    open: program(COMMANDS.python, lifecycle('stream')),
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
];
