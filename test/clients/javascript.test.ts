/** The quick cells of the matrix for the SDKs that need nothing but Node and Chromium. */
import { describeMatrix } from './scenario.ts';
import { JAVASCRIPT } from './variants.ts';

describeMatrix(JAVASCRIPT, { waits: false });
