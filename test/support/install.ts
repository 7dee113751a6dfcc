/** Once before all tests: installs the servers that the tests run on, where that is possible without a question. */
import { hostEnvironment } from '../../src/config.ts';
import { ensureServers } from '../../src/dev/install.ts';

export default function setup(): void {
  ensureServers(hostEnvironment(), (line) => console.log(line));
}
