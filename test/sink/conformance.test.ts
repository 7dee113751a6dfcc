import { describeSinks } from './conformance.ts';
import { NdjsonUnderTest } from './sinks.ts';

/** The others are in stores/conformance.test.ts. */
describeSinks([['ndjson', async () => new NdjsonUnderTest()]]);
