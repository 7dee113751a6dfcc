import { describe, expect, it } from 'vitest';
import { isScriptFault, WHILE_AWAY } from '../../../src/ingest/limit/failure-policy.ts';

const replied = (message: string): Error => Object.assign(new Error(message), { name: 'ReplyError' });

describe('the failure policy', () => {
  it('fails closed in production and lets through in development', () => {
    expect(WHILE_AWAY).toEqual({
      production: { rateToken: 'refuse', quota: 'fail', heartbeat: 'refuse' },
      development: { rateToken: 'admit', quota: 'admit', heartbeat: 'admit' },
    });
  });

  it('takes every reply that says that Redis does not do its work for an absence, also wrapped by a script', () => {
    const codes =
      'OOM READONLY MASTERDOWN LOADING CLUSTERDOWN BUSY MISCONF NOREPLICAS NOAUTH NOPERM WRONGPASS';
    for (const code of codes.split(' ')) {
      expect(isScriptFault(replied(`${code} why`)), code).toBe(false);
      expect(isScriptFault(replied(`ERR Error running script: -${code} why`)), code).toBe(false);
    }
  });

  it('takes what a script itself did wrong for a bug, and what has no reply for an absence', () => {
    expect(isScriptFault(replied('ERR user_script:5: quota: n'))).toBe(true);
    expect(isScriptFault(replied('WRONGTYPE Operation against a key'))).toBe(true);
    expect(isScriptFault(new Error('Command timed out'))).toBe(false);
    expect(isScriptFault(new Error('ERR is no reply here'))).toBe(false);
  });
});
