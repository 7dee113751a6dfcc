/** The machine and the versions that a set of figures belongs to; nothing that names a place or a host. */
import { spawnSync } from 'node:child_process';
import { cpus, release, totalmem, type } from 'node:os';
import { brokerVersion } from './broker.ts';
import { packageVersion, ROOT } from './harness.ts';

export type Environment = {
  date: string;
  cpu: string;
  cores: number;
  memoryGiB: number;
  kernel: string;
  node: string;
  redis: string;
  natsServer: string;
  sluice: string;
  commit: string;
};

const said = (command: string, args: string[]): string =>
  (spawnSync(command, args, { encoding: 'utf8', cwd: ROOT }).stdout ?? '').trim();

export function describeEnvironment(bins: { redis: string; nats: string }): Environment {
  const all = cpus();
  const dirty =
    said('git', ['status', '--porcelain', '--untracked-files=no', '--', 'src', 'bench']) === ''
      ? ''
      : ' with changes';
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: all[0]?.model.trim() ?? 'unknown',
    cores: all.length,
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    kernel: `${type()} ${release().split('-')[0]}`,
    node: process.version,
    redis: /v=(\S+)/.exec(said(bins.redis, ['--version']))?.[1] ?? 'unknown',
    natsServer: brokerVersion(bins.nats),
    sluice: packageVersion(),
    commit: `${said('git', ['rev-parse', '--short', 'HEAD']) || 'no git'}${dirty}`,
  };
}

/** A folder name: `amd-epyc-2-cores`. */
export const machineName = ({ cpu, cores }: Environment): string =>
  `${cpu
    .toLowerCase()
    .replace(/\(r\)|\(tm\)|processor|cpu/g, '')
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')}-${cores}-cores`;
