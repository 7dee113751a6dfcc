import { describeSinks } from './conformance.ts';
import { SINKS } from './sinks.ts';

describeSinks(SINKS);
