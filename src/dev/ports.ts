import { checkPortIsFree, PortError } from '../admin/port-check.ts';

type Listener = { host: string; port: number };

const HINTED_FROM = 8090;
const HINTED_STEP = 10;

/**
 * Looks at both ports before anything is started.
 * @throws an error of one line that names every port that cannot be had, and what to type instead
 */
export async function checkDevPorts(endpoints: Listener, admin: Listener): Promise<void> {
  const [ofEndpoints, ofAdmin] = [await whyNot(endpoints), await whyNot(admin)];
  const errors = [ofEndpoints, ofAdmin].filter((error) => error !== undefined);
  if (errors.length === 0) return;
  const why = errors.map(({ message }) => message).join('; ');
  if (!errors.every(({ isTaken }) => isTaken)) throw new Error(why);
  const port = await freePair(endpoints.host, admin.host);
  const adminFlag = ofAdmin ? ` --admin-port ${port + 1}` : '';
  throw new Error(`${why}; choose another: npm start -- --port ${port}${adminFlag}`);
}

async function whyNot({ host, port }: Listener): Promise<PortError | undefined> {
  try {
    await checkPortIsFree(host, port);
    return undefined;
  } catch (error) {
    if (error instanceof PortError) return error;
    throw error;
  }
}

/** @returns a port that is free for the endpoints, where the next one is so for the admin pages */
async function freePair(host: string, adminHost: string): Promise<number> {
  let port = HINTED_FROM;
  while ((await whyNot({ host, port })) || (await whyNot({ host: adminHost, port: port + 1 })))
    port += HINTED_STEP;
  return port;
}
