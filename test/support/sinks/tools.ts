/** The stores that `npm run test:sinks` runs on: ClickHouse's engine (546 MB) and SeaweedFS. */
import { DEPLOYED } from '../../deploy/versions.ts';
import { isInstalled, npmPackages, pythonProgram } from '../tools.ts';

const CHDB = { chdb: '3.4.0', '@chdb/lib-linux-x64-gnu': `${DEPLOYED.clickhouse}-stable.1` };
const SEAWEEDFS = '4.48';

/** The folder whose node_modules have chdb. */
export const chdbFolder = (): string => npmPackages('chdb', CHDB);

/** The program `weed`. */
export const weedProgram = (): string => pythonProgram('weed', 'seaweedfs', SEAWEEDFS);

/** Whether a start would install nothing. */
export const STORE_IS_INSTALLED = {
  clickhouse: () => isInstalled('chdb', CHDB),
  s3: () => isInstalled('seaweedfs', SEAWEEDFS),
} as const;

/** Before the files, which run side by side: each is installed once. */
export function setup(): void {
  chdbFolder();
  weedProgram();
}
