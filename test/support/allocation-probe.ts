import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector'

// Loaded into a program by `--import`. The first SIGUSR2 begins to sample what the program allocates, the second writes
// the number of bytes into the file that the environment names. A sample stands for all bytes since the sample before.

/** Bytes between two samples, on average. */
const samplingInterval = 4_096

interface Node {
  readonly selfSize: number
  readonly children: readonly Node[]
}

const bytesIn = ({ selfSize, children }: Node): number =>
  children.reduce((sum, child) => sum + bytesIn(child), selfSize)

const file = process.env.ALLOCATIONS ?? ''
const session = new Session()
session.connect()

process.once('SIGUSR2', () => {
  const includeAll = { includeObjectsCollectedByMajorGC: true, includeObjectsCollectedByMinorGC: true }
  session.post('HeapProfiler.startSampling', { samplingInterval, ...includeAll }, () =>
    writeFileSync(file, 'begun'),
  )
  process.once('SIGUSR2', () =>
    session.post('HeapProfiler.stopSampling', (_, { profile }) =>
      writeFileSync(file, String(bytesIn(profile.head))),
    ),
  )
})
