/** Bytes that can be read from any offset, any number of times, each time into a new buffer. */
export type ByteSource = {
  readonly length: number;
  read(offset: number, length: number): Promise<Uint8Array>;
};
