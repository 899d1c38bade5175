import { createSecretKey } from 'node:crypto'
import { join } from 'node:path'
import type { ChainPlace } from '../../../src/chaos/journal/chain-file.ts'

/** Returns the place of a chain in a folder, under a key of tests. */
export const placeOf = (folder: string): ChainPlace => ({
  path: join(folder, 'chain.jsonl'),
  headPath: join(folder, 'chain.head'),
  key: createSecretKey(Buffer.alloc(32, 7)),
})
