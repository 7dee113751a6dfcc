/** `sluice backfill`: copies rows from the objects of the s3 sink into a database. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { Command } from 'commander';
import { type SinkSetting, sinksIn } from '../config.ts';
import { systemClock } from '../lib/clock.ts';
import { createLog } from '../lib/log.ts';
import type { BroughtObject } from '../sink/backfill.ts';
import { SinkSettingError, UnavailableError } from '../sink/unavailable.ts';
import { CommandError, UsageError } from './command-error.ts';
import { printJson, printLine } from './print.ts';
import { parseProjectId, refuse } from './project/fields.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const SHOWN_EVERY_MS = 5_000;
/** Most refused rows that are printed. Further ones are only counted. */
const REFUSED_SHOWN_MAX = 20;

type Flags = {
  to: SinkSetting;
  since?: number;
  until?: number;
  project?: string;
  progress?: string;
  json?: boolean;
};
type Totals = { objects: number; rows: number; stored: number; refused: number };

function parseArchive(text: string): SinkSetting & { kind: 's3' } {
  const [sink, ...others] = sinksIn(text) ?? [];
  return sink?.kind === 's3' && others.length === 0
    ? sink
    : refuse('It is an s3:// URL, as SLUICE_SINK has it.');
}

function parseTarget(text: string): SinkSetting {
  const [sink, ...others] = sinksIn(text) ?? [];
  return (sink?.kind === 'clickhouse' || sink?.kind === 'postgres') && others.length === 0
    ? sink
    : refuse('It is a clickhouse:// or postgres:// URL, as SLUICE_SINK has it.');
}

/**
 * Parses a day or an hour, such as `2026-01-02` or `2026-01-02T03`, in UTC.
 * @returns the first moment of that day or hour, Unix milliseconds
 */
function parseHour(text: string): number {
  const [, date, hour = '00'] = /^(\d{4}-\d{2}-\d{2})(?:T(\d{2}))?$/.exec(text) ?? [];
  const ms = Date.parse(`${date}T${hour}:00:00Z`);
  return Number.isNaN(ms) ? refuse('It is a UTC day or hour, such as 2026-01-02 or 2026-01-02T03.') : ms;
}

/**
 * Parses the last day or hour that is included.
 * @returns the end of that day or hour, Unix milliseconds
 */
const parseUntil = (text: string): number => parseHour(text) + (text.includes('T') ? HOUR_MS : DAY_MS);

/** How far an earlier run of the same command came. The file of --progress keeps it. */
class Progress {
  readonly #file: string | undefined;
  readonly #what: string;

  constructor(file: string | undefined, what: string) {
    this.#file = file;
    this.#what = what;
  }

  async read(): Promise<string | undefined> {
    if (this.#file === undefined) return undefined;
    const text = await readFile(this.#file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw new UsageError(`--progress: ${error.message}`);
    });
    const [what, place] = text?.split('\n') ?? [];
    if (text !== undefined && what !== this.#what)
      throw new UsageError(`--progress: ${this.#file} is of another backfill (${what}).`);
    return place;
  }

  async write(place: string): Promise<void> {
    if (this.#file === undefined) return;
    await writeFile(`${this.#file}.new`, `${this.#what}\n${place}\n`);
    await rename(`${this.#file}.new`, this.#file);
  }
}

const hostAndPath = ({ url = '' }: { url?: string }): string => {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
};

/**
 * Makes a function that prints the progress every SHOWN_EVERY_MS, and a line for each refused row,
 * up to REFUSED_SHOWN_MAX lines.
 */
function teller(): (brought: BroughtObject, totals: Totals) => void {
  let shownAt = performance.now();
  return ({ place, objects, refused }, totals) => {
    const before = totals.refused - refused.length;
    for (const { entry, item, reason } of refused.slice(0, Math.max(0, REFUSED_SHOWN_MAX - before)))
      process.stderr.write(
        `sluice: refused: ${place} line ${entry + 1}${item === undefined ? '' : ` item ${item}`}: ${reason}\n`,
      );
    if (performance.now() - shownAt < SHOWN_EVERY_MS) return;
    shownAt = performance.now();
    const [date, stream] = place.split(' ');
    process.stderr.write(
      `sluice: ${date} ${stream}: object ${objects.done} of ${objects.ofDay}; ${totals.rows} rows so far, ${totals.stored} new\n`,
    );
  };
}

async function run(from: SinkSetting & { kind: 's3' }, flags: Flags): Promise<Totals> {
  const { to, since = 0, until = Number.MAX_SAFE_INTEGER, project } = flags;
  const [{ openSinks }, { backfill }] = await Promise.all([
    import('../sink/open-sinks.ts'),
    import('../sink/backfill.ts'),
  ]);
  const ofProject = project === undefined ? '' : ` of project ${project}`;
  const what = `${hostAndPath(from)} to ${hostAndPath(to as { url?: string })} since ${since} until ${until}${ofProject}`;
  const progress = new Progress(flags.progress, what);
  const after = await progress.read();
  const totals: Totals = { objects: 0, rows: 0, stored: 0, refused: 0 };
  const tell = teller();
  const sink = await openSinks([to], { clock: systemClock, log: createLog('silent') });
  try {
    const span = { since, until };
    const wanted = {
      from,
      to: sink,
      span,
      ...(project !== undefined && { project }),
      ...(after && { after }),
    };
    for await (const brought of backfill(wanted)) {
      totals.objects++;
      totals.rows += brought.rows;
      totals.stored += brought.stored;
      totals.refused += brought.refused.length;
      await progress.write(brought.place);
      tell(brought, totals);
    }
  } finally {
    await sink.close();
  }
  return totals;
}

export function backfillCommand(): Command {
  return new Command('backfill')
    .description('bring rows of an archive of the s3 sink into a database; what it has is not stored twice')
    .argument('<archive>', 's3://bucket/prefix?endpoint=…, as in SLUICE_SINK', parseArchive)
    .requiredOption('--to <sink>', 'clickhouse://… or postgres://…, as in SLUICE_SINK', parseTarget)
    .option('--since <hour>', 'the first UTC day or hour of receipt, 2026-01-02 or 2026-01-02T03', parseHour)
    .option('--until <hour>', 'the last one, itself included', parseUntil)
    .option('--project <id>', 'rows of this project alone', parseProjectId)
    .option('--progress <file>', 'keeps the place there, so that the same command goes on from it')
    .option('--json', 'print JSON')
    .action(async (from: SinkSetting & { kind: 's3' }, flags: Flags) => {
      const totals = await run(from, flags).catch((error: unknown) => {
        if (error instanceof SinkSettingError)
          throw new UsageError(error.message.replace('SLUICE_SINK: ', ''), { cause: error });
        if (!(error instanceof UnavailableError)) throw error;
        throw new CommandError(`${error.message}. The same command goes on.`, { cause: error });
      });
      const { objects, rows, stored, refused } = totals;
      if (flags.json) printJson(totals);
      else
        printLine(`Read ${rows} rows of ${objects} objects: ${stored} records stored, ${refused} refused.`);
      if (refused > 0) throw new CommandError(`${refused} rows are refused by the database, and not stored.`);
    });
}
