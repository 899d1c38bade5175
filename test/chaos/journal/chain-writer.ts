import { ChainFile, checkedRecords } from '../../../src/chaos/journal/chain-file.ts'
import { drained, parseRecord } from '../../../src/chaos/journal/read-chain.ts'
import { placeOf } from './chain-place.ts'

// A program that appends lines to a chain until it is killed, and tells the number of each line that is on disk.

const place = placeOf(process.argv[2]!)
const { chain } = await drained(checkedRecords(place, parseRecord))
const file = await (chain === undefined ? ChainFile.begin(place) : ChainFile.continue(place, chain))
for (let n = chain?.hashes.length ?? 1; ; n++) {
  await file.append([{ n, text: 'x'.repeat(2_000) }])
  process.send!(n)
}
