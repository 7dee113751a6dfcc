/** What a fault is, and the kinds of which there are many. */
import { setTimeout as pause } from 'node:timers/promises';
import { pick, type Random } from '../../bench/random.ts';
import type { Weather } from '../support/tcp-proxy.ts';
import type { Way } from './backing.ts';
import type { Excuses, Terms, Told } from './ledger.ts';
import type { Load } from './load.ts';
import type { Stand } from './stand.ts';
import type { Supervised } from './supervised.ts';

/** What a fault may reach for. */
export type Scene = {
  stand: Stand;
  random: Random;
  /** Further clients, to be stopped by the fault; what they are told counts like the rest. */
  flood(payloadBytes: number): Load;
  /** The fault adds what the contract excepts. */
  excuses: Excuses;
};

/** What only some stands have. */
type Need = 'single broker' | 'cluster' | 'store' | 'lock' | 'sink disk' | 'disks' | 'clocks';

export type Fault = {
  name: string;
  holdMs: number;
  /** Begins it. @returns how to end it */
  strike(scene: Scene): Promise<() => Promise<void>>;
  /** Kills a process that holds connections of clients: some requests get no answer. */
  cuts?: true;
  needs?: Need;
  /** Load before it, when more than the usual is wanted. */
  warmMs?: number;
  /** Looks at the stand when everything is drained, if nothing else struck. @returns sentences about what is wrong */
  afterwards?(stand: Stand, terms: Terms, told: readonly Told[]): Promise<string[]>;
};

const HAS: Readonly<Record<Need, (stand: Stand) => boolean>> = {
  'single broker': ({ backing }) => backing.nats !== undefined,
  cluster: ({ backing }) => backing.cluster !== undefined,
  store: ({ backing }) => backing.store !== undefined,
  lock: ({ backing }) => backing.store?.lock !== undefined,
  'sink disk': ({ backing }) => backing.hasDisk('sink'),
  disks: ({ backing }) => backing.hasDisk('spool'),
  clocks: ({ backing }) => backing.hasClocks,
};

export const fits = ({ needs }: Fault, stand: Stand): boolean => needs === undefined || HAS[needs](stand);

export const nothing = async (): Promise<void> => undefined;

export const anyIngest = ({ stand, random }: Scene): Supervised => pick(random, stand.ingest);
export const anyWorker = (scene: Scene): number => pick(scene.random, anyIngest(scene).children);
export const anyProcessor = ({ stand, random }: Scene): Supervised => pick(random, stand.processors);

/** Stops the process of this id for a while. */
export const frozen = (
  name: string,
  holdMs: number,
  pidOf: (scene: Scene) => number | Promise<number>,
): Fault => ({
  name,
  holdMs,
  strike: async (scene) => {
    const pid = await pidOf(scene);
    process.kill(pid, 'SIGSTOP');
    return async () => {
      try {
        process.kill(pid, 'SIGCONT');
      } catch {
        // Whoever watches it has ended it meanwhile.
      }
    };
  },
});

export const killed = (name: string, of: (scene: Scene) => Supervised): Fault => ({
  name,
  holdMs: 0,
  strike: async (scene) => {
    of(scene).signal('SIGKILL');
    return nothing;
  },
});

type Spoiled = Weather & { holdMs: number };

/** Bad weather on the way to one of the servers. */
export const weather = (name: string, way: Way, { holdMs, ...what }: Spoiled): Fault => ({
  name,
  holdMs,
  ...(way === 'processor to nats' && { needs: 'single broker' }),
  ...(way === 'sink' && { needs: 'store' }),
  strike: async ({ stand }) => {
    stand.backing.weather(way, what);
    return async () => stand.backing.weather(way, {});
  },
});

export const cutConnections = (name: string, way: Way): Fault => ({
  ...weather(name, way, { holdMs: 0 }),
  strike: async ({ stand, excuses }) => {
    for (let n = 0; n < 5; n++) {
      if (way === 'redis') excuses.redisCuts.push(performance.now());
      stand.backing.cut(way);
      await pause(200);
    }
    return nothing;
  },
});
