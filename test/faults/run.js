// Node 20 cannot run TypeScript by itself; Vite, which the tests have anyway, can.
import { runnerImport } from 'vite';

await runnerImport(new URL('./main.ts', import.meta.url).pathname, { logLevel: 'error' });
