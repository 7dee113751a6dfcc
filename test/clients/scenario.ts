/** The matrix: every SDK does what the table of cells says, against one real system. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Project, type StoredRecord, System } from '../support/system.ts';
import { type Act, CELLS, type Cell, expectStored, RESTART_CELL, textOf } from './cells.ts';
import { type Answer, type Client, FLUSH, Pages } from './client.ts';
import { build, type Sdk, versionOf } from './sdks.ts';

export type Variant = {
  readonly title: string;
  readonly sdk: Sdk;
  /** The item type in which it sends traces. */
  readonly traces: 'span' | 'transaction';
  /** Spans that a framework adds to a trace. */
  readonly ownSpans?: readonly string[];
  /** Steps that the SDK does not know, or shortens. */
  readonly unable?: (step: Act) => boolean;
  open(dsn: string, pages: Pages): Client | Promise<Client>;
};

const MATRIX = {
  /** Requests a minute of the project that is limited, and how many messages it is sent at once. */
  rateLimit: 5,
  burst: 10,
  /** The oldest request leaves the window after 60 s. An SDK that heard so sends soon after. */
  recoveryMsMax: 67_000,
  /** For package managers and compilers, on a machine that has nothing yet. */
  buildMsMax: 15 * 60_000,
} as const;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const cellsOf = ({ unable = () => false }: Variant, cells: readonly Cell[]): Cell[] =>
  cells.filter(({ steps }) => !steps.some(unable));

/** One variant's applications and what their SDKs returned. */
class Run {
  readonly project: Project;
  readonly limited: Project;
  readonly #client: Client;
  readonly #limitedClient: Client;
  readonly #answers = new Map<Cell, Answer[]>();
  readonly failures: unknown[] = [];
  /** Messages to the limited project so far; each says its number. */
  #limitedMessages = 0;

  private constructor(projects: Project[], clients: Client[]) {
    [this.project, this.limited] = projects as [Project, Project];
    [this.#client, this.#limitedClient] = clients as [Client, Client];
  }

  static async start(variant: Variant, system: System, pages: Pages): Promise<Run> {
    const wanted = [{}, { rateLimit: MATRIX.rateLimit }];
    const projects = await Promise.all(wanted.map((fields) => system.createProject(fields)));
    const open = (project: Project) => variant.open(system.dsn(project), pages);
    return new Run(projects, await Promise.all(projects.map(open)));
  }

  async #step(cell: Cell, step: Act): Promise<void> {
    const answer = await this.#client.step(step);
    this.#answers.set(cell, [...this.answersTo(cell), answer]);
  }

  async stepAndFlush(cell: Cell, step: Act): Promise<void> {
    await this.#step(cell, step);
    await this.#client.step(FLUSH);
  }

  async do(cells: readonly Cell[]): Promise<void> {
    for (const cell of cells) {
      const atOnce = Math.min(cell.atOnce ?? 1, this.#client.atOnceMax);
      for (const [at, step] of cell.steps.entries()) {
        if (at > 0 && cell.silence) await pause(cell.silence);
        await this.#step(cell, step);
        if ((at + 1) % atOnce === 0) await this.#client.step(FLUSH);
      }
    }
  }

  async #limitedMessage(): Promise<void> {
    await this.#limitedClient.step({ do: 'message', text: `${this.#limitedMessages++}` });
    await this.#limitedClient.step(FLUSH);
  }

  /** More messages at once than the limit, then one a second until the SDK should have gone on. */
  async exceedLimit(): Promise<void> {
    for (let at = 0; at < MATRIX.burst; at++) await this.#limitedMessage();
    // Not from the first message on: a busy machine may take seconds for it.
    const since = Date.now();
    while (Date.now() - since < MATRIX.recoveryMsMax) {
      await pause(1_000);
      await this.#limitedMessage();
    }
  }

  /** A step that fails ends what this application does, and none of the others. */
  async attempt(act: () => Promise<void>): Promise<void> {
    await act().catch((error: unknown) => this.failures.push(error));
  }

  answersTo(cell: Cell): Answer[] {
    return this.#answers.get(cell) ?? [];
  }

  async close(): Promise<void> {
    await Promise.all([this.#client.close(), this.#limitedClient.close()]);
  }
}

async function restart(system: System): Promise<void> {
  expect(await system.ingest.stop()).toBe(0);
  system.ingest = system.startIngest();
  await system.ready();
}

/** Errors that the system answered: SDKs do not repeat what they sent. */
async function errorsOf(system: System): Promise<string[]> {
  const lines = (await system.metrics()).split('\n');
  const errors = /outcome="(failed|overloaded|aborted|limiter_unavailable|too_slow|invalid)"} (?!0$)/;
  return lines.filter((line) => line.startsWith('sluice_requests_total{') && errors.test(line));
}

/**
 * All variants at once, so that their silences cost the time of one.
 * @returns the errors that the system answered before the restart
 */
async function playAll(variants: ReadonlyMap<Variant, Run>, system: System): Promise<string[]> {
  const runs = [...variants.values()];
  await Promise.all(
    [...variants].flatMap(([variant, run]) => [
      run.attempt(() => run.do(cellsOf(variant, CELLS))),
      run.attempt(() => run.exceedLimit()),
    ]),
  );
  const [before, after] = RESTART_CELL.steps as [Act, Act];
  await Promise.all(runs.map((run) => run.attempt(() => run.stepAndFlush(RESTART_CELL, before))));
  const errors = await errorsOf(system);
  await restart(system);
  await Promise.all(runs.map((run) => run.attempt(() => run.stepAndFlush(RESTART_CELL, after))));
  return errors;
}

/** The silences and the recovery from a 429 take a minute and a half. */
export function describeMatrix(variants: readonly Variant[]): void {
  const runs = new Map<Variant, Run>();
  let system: System;
  let pages: Pages;
  let errors: string[];

  beforeAll(async () => {
    // SDKs of one manifest are installed together.
    await Promise.all([...new Map(variants.map(({ sdk }) => [sdk.manifest, sdk.build])).values()].map(build));
    [system, pages] = await Promise.all([System.start(), Pages.start()]);
    await Promise.all(
      variants.map(async (variant) => runs.set(variant, await Run.start(variant, system, pages))),
    );
    errors = await playAll(runs, system);
  }, MATRIX.buildMsMax);
  afterAll(async () => {
    await Promise.all([...runs.values()].map((run) => run.close()));
    await pages?.close();
    await system?.stop();
  });

  it('the system answers no SDK with an error of its own', async () => {
    expect([...errors, ...(await errorsOf(system))]).toEqual([]);
  });

  describe.each(variants)('$title', (variant) => {
    const { sdk, traces, ownSpans } = variant;
    const run = (): Run => runs.get(variant) as Run;
    const recordsOf = (project: Project): StoredRecord[] =>
      system.stored().filter(({ project_id }) => project_id === project.id);

    it('does every step', () => {
      expect(run().failures).toEqual([]);
    });

    it.each(cellsOf(variant, [...CELLS, RESTART_CELL]))('$title', async (cell) => {
      const said = { answers: run().answersTo(cell), traces, ownSpans };
      await expectStored(() => recordsOf(run().project), cell, said);
    });

    it('is named with its version by every stored record', () => {
      const named = new Set(recordsOf(run().project).map((record) => record.sdk));
      expect([...named]).toEqual([sdk.said ?? `${sdk.name}/${versionOf(sdk)}`]);
    });

    it('is refused above the limit of its project, and never silent for longer than it was told', async () => {
      const { limited } = run();
      const stored = (): number[] =>
        recordsOf(limited).flatMap((record) => (record.type === 'event' ? [Number(textOf(record))] : []));
      await expect.poll(stored).toContain(0);
      await expect.poll(() => Math.max(...stored())).toBeGreaterThanOrEqual(MATRIX.burst);
      expect(stored().filter((at) => at < MATRIX.burst).length).toBeLessThanOrEqual(MATRIX.rateLimit);
    });
  });
}
