/** Attacks beside honest traffic: every attack gets its refusal, and the others hardly notice. */
import { total } from '../scrape.ts';
import { attacks, slowConnections, sustain } from './attacks.ts';
import { beside, isCalm, rowOf, type Siege, takePlaces, warmUp } from './beside.ts';
import { floods } from './floods.ts';
import type { Scene, Show } from './scene.ts';
import { pathOf } from './worker.ts';

const SLOW_MS = 60_000;
const SLOW_COUNT = 2_000;
const IDLE_COUNT = 5_000;
const PER_SECOND = 5;

const attackedPath = ({ targets }: Scene): string => pathOf(targets[0] as (typeof targets)[0]);

async function siegeOf(scene: Scene, sieges: readonly Siege[]): Promise<{ lines: string[]; holds: boolean }> {
  const { worker } = scene;
  const lines = [takePlaces()];
  let holds = true;
  const rest = async (ms: number) => {
    await new Promise((resolve) => setTimeout(resolve, ms));
    return { said: '', refused: true };
  };
  await warmUp(scene);
  for (const siege of sieges.filter(({ name }) => name.includes(scene.only))) {
    const result = await beside(scene, siege);
    holds &&= isCalm(result) && result.fought.refused;
    lines.push(rowOf(siege.name, result));
  }
  // How far apart the figures of quiet windows are.
  lines.push(rowOf('nothing', await beside(scene, { name: 'nothing', run: rest })));
  const restarts = total(await worker.metrics(), 'sluice_worker_restarts_total');
  lines.push(`restarts   ${restarts}`);
  return { lines, holds: holds && restarts === 0 };
}

export const refusals: Show = (scene) => {
  const path = attackedPath(scene);
  const { port } = scene.worker;
  const sieges = attacks().map(
    (attack): Siege => ({
      name: `${attack.name}, ${PER_SECOND}/s`,
      run: async (ms) => {
        const tally = await sustain(attack, { port, path, perSecond: PER_SECOND, ms });
        const statuses = [...tally.counts.keys()].map((kind) => Number(kind.split(' ')[0]));
        return { said: `${tally}`, refused: statuses.every((status) => attack.expected.includes(status)) };
      },
    }),
  );
  const slow: Siege = {
    name: `${SLOW_COUNT} slow connections`,
    run: async () => {
      const { ended, left, longest } = await slowConnections(port, { path, count: SLOW_COUNT, ms: SLOW_MS });
      return { said: `${ended} ended within ${longest.toFixed(0)} s, ${left} left`, refused: left === 0 };
    },
  };
  return siegeOf(scene, [...sieges, slow]);
};

export const connections: Show = (scene) =>
  siegeOf(scene, floods({ port: scene.worker.port, path: attackedPath(scene), idleCount: IDLE_COUNT }));
