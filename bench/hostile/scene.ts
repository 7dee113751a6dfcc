import type { Harness } from '../harness.ts';
import type { Target } from '../workload.ts';
import type { HostileWorker } from './worker.ts';

/** What every command of the attacks is given: the system, its worker, the projects that are sent to. */
export type Scene = {
  harness: Harness;
  worker: HostileWorker;
  targets: readonly Target[];
  /** Further projects, for what one alone may fill but half of. */
  crowd: readonly Target[];
  count: number | undefined;
  seed: number;
  /** Part of the names of the attacks, or of the kinds of mutations, that are wanted. */
  only: string;
};
/** @returns lines to print, and whether it held */
export type Show = (scene: Scene) => Promise<{ lines: string[]; holds: boolean }>;
