/**
 * Moves a project from this cell to another one, in four steps. A cell is a deployment with Redis
 * and NATS of its own. First, the other cell gets the counts. Second, it gets the record; from then
 * on both cells serve the project. Third, the operator redirects the project's requests to the
 * other cell. Fourth, the record is disabled in this cell.
 *
 * While both cells serve the project, the command tells each cell again and again what the other
 * has counted, so that the quota holds for both together. Every step may be repeated: a cell
 * remembers how much of a month's count came from the other cell (share-usage.lua), keeps the other
 * cell's outcomes as a copy beside its own, and keeps the later hour of a key's last use. This cell
 * still stores the frames that wait in its streams.
 */
import { readUsage, setUsage, shareUsage } from '../ingest/limit/month-count.ts';
import type { LimitRedis } from '../ingest/limit/redis.ts';
import { mergeUse, readUse } from '../ingest/usage/key-use.ts';
import type { Log } from '../lib/log.ts';
import { UnknownNameError } from '../projects/names.ts';
import type { Project } from '../projects/project.ts';
import { ProjectStore } from '../projects/project-store.ts';
import { CheckpointBucket, type MonthCounts } from '../projects/usage/checkpoint-bucket.ts';
import { cellName, noteMove, readMoves } from '../projects/usage/moves.ts';
import { copyOutcomes } from '../projects/usage/outcome-day.ts';
import type { NatsLink } from '../stream/nats.ts';
import type { Connections } from './connections.ts';
import { OperationError } from './operation-error.ts';

type Cell = {
  link: NatsLink;
  redis: LimitRedis;
  store: ProjectStore;
  checkpoints: CheckpointBucket;
  cell: string;
};

async function openCell(connections: Connections, { by, log }: { by: string; log: Log }): Promise<Cell> {
  const [link, redis] = [await connections.nats(), await connections.redis()];
  const [store, cell] = [await ProjectStore.open(link, { by }), await cellName(link)];
  return { link, redis, store, checkpoints: new CheckpointBucket({ link, log }), cell };
}

const findIn = async ({ store }: Cell, id: string): Promise<Project | undefined> =>
  store.get(id).catch((error: unknown) => {
    if (!(error instanceof UnknownNameError)) throw error;
    return undefined;
  });

const isOn = ({ enabled }: Project): boolean => enabled !== false;

export class ProjectMove {
  readonly #from: Cell;
  readonly #to: Cell;
  readonly project: Project;
  /** Counts of this cell by month, without the counts that came from the other cell. */
  #counted: MonthCounts = new Map();

  private constructor(from: Cell, to: Cell, project: Project) {
    this.#from = from;
    this.#to = to;
    this.project = project;
  }

  /**
   * Copies the counts to the other cell, then the record. From then on both cells serve the
   * project.
   * @throws OperationError when both cells are the same, or the other cell has a project of this id
   * that did not come from this cell; RegistryError
   */
  static async begin(
    cells: { from: Connections; to: Connections },
    idOrAlias: string,
    options: { by: string; log: Log },
  ): Promise<ProjectMove> {
    const [from, to] = [await openCell(cells.from, options), await openCell(cells.to, options)];
    if (from.cell === to.cell)
      throw new OperationError('conflict', 'Both are the same cell: --to names another one.');
    const project = await from.store.get(idOrAlias);
    const there = await findIn(to, project.id);
    if (there && (await readMoves(to.link, project.id))[from.cell] === undefined)
      throw new OperationError(
        'conflict',
        `The other cell has a project ${project.id} that did not come from here.`,
      );
    const move = new ProjectMove(from, to, project);
    await move.#note();
    await move.#countOn();
    await move.carry();
    if (!there) await to.store.create(project);
    else if (isOn(project) && !isOn(there)) await to.store.set(there.id, () => project);
    return move;
  }

  /** Whether this cell still answers the project's requests. */
  get isServedHere(): boolean {
    return isOn(this.project);
  }

  /**
   * Tells the other cell the counts that the last call read in this cell, and then tells this cell
   * the present counts of the other cell.
   * @returns the counts of both cells together, by month
   */
  async share(): Promise<MonthCounts> {
    const { id } = this.project;
    const there = await shareUsage(this.#to.redis, id, { cell: this.#from.cell, counts: this.#counted });
    this.#counted = await shareUsage(this.#from.redis, id, { cell: this.#to.cell, counts: there });
    for (const [month, count] of this.#counted) there.set(month, (there.get(month) ?? 0) + count);
    return there;
  }

  /**
   * Copies the present counts, outcomes and last uses of keys to the other cell.
   * @returns the counts of both cells together
   */
  async carry(): Promise<MonthCounts> {
    const { id } = this.project;
    await this.#note();
    await this.share();
    // The first call read this cell's counts; the second call tells them to the other cell.
    const counts = await this.share();
    for (const [month, count] of counts)
      await this.#to.checkpoints.write(this.#to.checkpoints.groupOf(id), month, new Map([[id, count]]));
    await copyOutcomes(id, this.#from, this.#to);
    await mergeUse(this.#to.link, this.project, await readUse(this.#from.link, id));
    return counts;
  }

  /** Disables the project in this cell, which then no longer accepts the project's requests. */
  async disableHere(): Promise<void> {
    await this.#from.store.set(this.project.id, (project) => ({ ...project, enabled: false }));
  }

  /** Notes in both cells that they share counts of this month, before they begin to share them. */
  async #note(): Promise<void> {
    const { month } = await readUsage(this.#from.redis, this.project.id);
    await noteMove(this.#to.link, this.project.id, { cell: this.#from.cell, month });
    await noteMove(this.#from.link, this.project.id, { cell: this.#to.cell, month });
  }

  /**
   * If the Redis of the cell that the project leaves has no count of the month, sets the count to
   * the checkpoint. The next request would do the same.
   */
  async #countOn(): Promise<void> {
    const { id } = this.project;
    const { month, count } = await readUsage(this.#from.redis, id);
    const checkpoint = count === undefined ? await this.#from.checkpoints.read(id, month) : undefined;
    if (checkpoint !== undefined)
      await setUsage(this.#from.redis, { projectId: id, month, count: checkpoint, seen: undefined });
  }
}
