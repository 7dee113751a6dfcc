/** Certificates as docs/operations.md tells how to make them, for the addresses of this machine. */
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const hasOpenssl = spawnSync('openssl', ['version'], { stdio: 'ignore' }).status === 0;

/**
 * An authority and a server's certificate of it: ca.crt, tls.crt and tls.key, over those that are there.
 * @param addresses of the server beside 127.0.0.1
 */
export function makeCertificates(dir: string, addresses: readonly string[] = []): void {
  const openssl = (line: string): void =>
    void execFileSync('openssl', line.split(' '), { cwd: dir, stdio: 'ignore' });
  const key = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';
  openssl(`req -x509 ${key} -days 2 -keyout ca.key -out ca.crt -subj /CN=sluice-ca`);
  openssl(`req ${key} -keyout tls.key -out tls.csr -subj /CN=sluice-servers`);
  const names = ['DNS:localhost', ...['127.0.0.1', ...addresses].map((address) => `IP:${address}`)];
  writeFileSync(join(dir, 'san'), `subjectAltName=${names}`);
  openssl('x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile san -out tls.crt');
}
