// The generator must not share an event loop with proxies and samples. Node 20 cannot run TypeScript by itself; Vite can.
import { runnerImport } from 'vite';

const file = new URL('../../../bench/load/options.ts', import.meta.url).pathname;
const { module } = await runnerImport(file, { logLevel: 'error' });
process.once('message', async (loads) => {
  process.send(await Promise.all(loads.map((load) => module.runLoad(load))));
});
// Whoever started us has what it wanted, or is gone. To leave by ourselves would be a race: an exit can overtake the message before it.
process.once('disconnect', () => process.exit(0));
process.send('ready');
