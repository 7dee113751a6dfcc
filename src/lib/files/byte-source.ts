/**
 * Bytes that can be read from any offset, any number of times. Each read returns a buffer of its
 * own.
 */
export type ByteSource = {
  readonly length: number;
  read(offset: number, length: number): Promise<Uint8Array>;
};
