/** `npm run test:faults -- --seed N --minutes M`: every fault once, then random mixes until the time is over. */
import { parseArgs } from 'node:util';
import { syncingAlways } from '../../bench/broker.ts';
import { buildRef, WORKING_TREE } from '../../bench/compare.ts';
import { integer, pick, type Random, seededRandom } from '../../bench/random.ts';
import { binary, temporaryFolder } from '../support/servers.ts';
import { STORE_IS_INSTALLED } from '../support/sinks/tools.ts';
import { mayMount } from '../support/small-disk.ts';
import { canStepClocks } from '../support/step-clock.ts';
import { type Attack, attacks } from './attacks.ts';
import { type Fault, fits } from './fault.ts';
import { FAULTS } from './faults.ts';
import { CLIENTS } from './load.ts';
import { runScenario } from './scenario.ts';
import { soak } from './soak/soak.ts';
import { growing, soakText } from './soak/soak-table.ts';
import { Stand, type StandOptions } from './stand.ts';
import {
  answers,
  faultTable,
  type Row,
  recoveryTable,
  sumTable,
  totalTable,
  writeHistory,
  writeSamples,
} from './table.ts';
import { backTo, upgradeTo } from './upgrade.ts';

const USAGE = `usage: npm run test:faults -- [--seed N] [--minutes M] [--clients N] [--sync-always] [--stand ndjson|postgres|cluster|cell|disks|clickhouse|s3] [--fault PATTERN | --mixes | --attacks | --soak | --from REF [--to REF]]
--clients (16) sets the load: each sends some 24 requests a second. Without --stand they follow one another; disks needs root, clickhouse and s3 are left out where \`npm run test:sinks\` has not installed their stores. --fault runs only those whose name matches the pattern, again and again; --mixes leaves out the single faults; --attacks: mixes under attacks by one project, on ndjson unless another stand is named; --sync-always: nats-server syncs each message before it acknowledges it; --soak sends SDK-shaped traffic at 70 % of capacity and watches memory, files and lag. --from starts with an earlier build, upgrades it process by process to --to (by default this build) and goes back, once on each stand but clickhouse and s3, which want to be named: an earlier build may not know them. NATS_SERVER_BIN names another broker.`;

type StandName = 'ndjson' | 'postgres' | 'cluster' | 'cell' | 'disks' | 'clickhouse' | 's3';
const clocks = canStepClocks();
/** The store's data is on a small disk where this user may mount one. */
const stores = { processors: 2, clocks, ...(mayMount() && { smallDisks: ['sink'] as const }) };
const STANDS: Readonly<Record<StandName, StandOptions>> = {
  ndjson: { clocks },
  postgres: { store: 'postgres', ...stores },
  cluster: { cluster: true },
  cell: { cluster: true, store: 'postgres', processors: 2 },
  disks: { smallDisks: ['nats', 'sink', 'redis', 'spool'], maxBytes: 16 * 1024 * 1024 },
  clickhouse: { store: 'clickhouse', ...stores },
  s3: { store: 's3', ...stores },
};
/** Of one mix. */
const FAULTS_OF_MIX = [3, 6] as const;
/** Longer ones strike alone. */
const HOLD_MS_OF_MIX = 20_000;

const say = (line: string): void => void process.stdout.write(`${line}\n`);

class Run {
  readonly rows: Row[] = [];
  #failed = false;
  readonly #name: StandName;
  readonly #stand: Stand;
  readonly #random: Random;
  readonly #seed: number;
  readonly #clients: number;

  constructor(name: StandName, stand: Stand, { seed, clients }: { seed: number; clients: number }) {
    this.#name = name;
    this.#stand = stand;
    this.#seed = seed;
    this.#clients = clients;
    this.#random = seededRandom(seed);
  }

  get failed(): boolean {
    return this.#failed;
  }

  async scenario(faults: readonly Fault[], attack?: Attack): Promise<void> {
    const options = { random: this.#random, clients: this.#clients, attack };
    const report = await runScenario(this.#stand, faults, options);
    const { told: _told, terms: _terms, evidence: _evidence, ...outcome } = report;
    const row: Row = { stand: this.#name, seed: this.#seed, report: outcome };
    this.rows.push(row);
    say(faultTable([row]).split('\n').slice(2).join('\n'));
    if (report.attack) say(`        under ${report.attack.name}: ${answers(report.attack.answers)}`);
    if (report.judgement.broken.length === 0) return;
    this.#failed = true;
    const file = writeHistory(row, report, this.#stand.parts.map(({ log }) => log).join('\n'));
    for (const sentence of report.judgement.broken) say(`BROKEN  ${sentence}`);
    say(`        history: ${file}`);
  }

  /** Each that this stand can have, one at a time. */
  async each(faults: readonly Fault[], until: number): Promise<void> {
    for (const fault of faults) if (performance.now() < until) await this.scenario([fault]);
  }

  /** @param attacks one goes on during each mix, in turn; the seed says with which the turns begin */
  async mixes(faults: readonly Fault[], until: number, attacks: readonly Attack[] = []): Promise<void> {
    for (let n = 0; performance.now() < until; n++) {
      const count = integer(this.#random, ...FAULTS_OF_MIX);
      const mix = Array.from({ length: count }, () => pick(this.#random, faults));
      await this.scenario(mix, attacks[(this.#seed + n) % attacks.length]);
    }
  }
}

async function mainUpgrade(
  names: readonly StandName[],
  refs: readonly [from: string, to: string],
  clients: number,
): Promise<void> {
  const builds = refs.map((ref) => ({ name: ref === WORKING_TREE ? 'this build' : ref, ...buildRef(ref) }));
  const [from, to] = builds as [(typeof builds)[0], (typeof builds)[0]];
  const rows: Row[] = [];
  let failed = false;
  try {
    for (const name of names) {
      const stand = await Stand.start({ ...STANDS[name], dist: from.dist });
      const run = new Run(name, stand, { seed: 1, clients });
      await run.scenario([upgradeTo(to), backTo(from)]).finally(() => stand.close());
      rows.push(...run.rows);
      failed ||= run.failed;
    }
  } finally {
    for (const { remove } of builds) remove();
  }
  say(`\n${recoveryTable(rows)}\n\n${sumTable(rows)}`);
  process.exitCode = failed ? 1 : 0;
}

async function mainSoak(options: { minutes: number; seed: number }): Promise<void> {
  const report = await soak({ ...options, say });
  say(`\n${soakText(report)}`);
  say(`samples: ${writeSamples(report)}`);
  const broken = [...report.broken, ...growing(report)];
  for (const sentence of broken) say(`BROKEN  ${sentence}`);
  process.exitCode = broken.length > 0 ? 1 : 0;
}

/** @param named by --stand */
function standsFor(named: string | undefined, upgrades: boolean): StandName[] {
  const names = Object.keys(STANDS) as StandName[];
  if (named !== undefined) return names.filter((name) => name === named);
  return names.filter((name) => {
    if (name !== 'clickhouse' && name !== 's3') return true;
    if (upgrades) return false;
    if (STORE_IS_INSTALLED[name]()) return true;
    say(`${name} is left out: \`npm run test:sinks\` installs its store`);
    return false;
  });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      minutes: { type: 'string', default: '10' },
      clients: { type: 'string', default: `${CLIENTS}` },
      stand: { type: 'string' },
      fault: { type: 'string' },
      mixes: { type: 'boolean', default: false },
      attacks: { type: 'boolean', default: false },
      'sync-always': { type: 'boolean', default: false },
      soak: { type: 'boolean', default: false },
      from: { type: 'string' },
      to: { type: 'string', default: WORKING_TREE },
      help: { type: 'boolean' },
    },
  });
  if (values.help) return say(USAGE);
  if (values.soak) return mainSoak({ minutes: Number(values.minutes), seed: Number(values.seed) });
  const clients = Number(values.clients);
  const all = values.attacks ? attacks() : [];
  const wantedStand = values.stand ?? (values.attacks ? 'ndjson' : undefined);
  const chosen = standsFor(wantedStand, values.from !== undefined);
  if (chosen.length === 0) throw new Error(USAGE);
  if (values['sync-always'])
    process.env.NATS_SERVER_BIN = syncingAlways(binary('nats-server'), temporaryFolder('nats'));
  if (values.from !== undefined) return mainUpgrade(chosen, [values.from, values.to], clients);
  const share = (Number(values.minutes) * 60_000) / chosen.length;
  const rows: Row[] = [];
  let failed = false;
  for (const name of chosen) {
    const until = performance.now() + share;
    const stand = await Stand.start(STANDS[name]);
    const run = new Run(name, stand, { seed: Number(values.seed), clients });
    const faults = FAULTS.filter((fault) => fits(fault, stand));
    const mixed = faults.filter(({ holdMs }) => holdMs <= HOLD_MS_OF_MIX);
    const named = new RegExp(values.fault ?? '');
    const wanted = faults.filter(({ name }) => named.test(name));
    try {
      if (!values.mixes && !values.attacks) await run.each(wanted, until);
      if (values.fault === undefined) await run.mixes(mixed, until, all);
      else while (performance.now() < until) await run.each(wanted, until);
    } finally {
      await stand.close();
    }
    rows.push(...run.rows);
    failed ||= run.failed;
  }
  say(`\n${totalTable(rows)}\n\n${recoveryTable(rows)}\n\n${sumTable(rows)}`);
  process.exitCode = failed ? 1 : 0;
}

await main();
