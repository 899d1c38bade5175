import { Player, type Exchange } from '../player.ts'
import { startStage } from '../stage.ts'
import { playBatches } from './batches.ts'
import { playControl } from './control.ts'
import { playFailures } from './failures.ts'
import { playMalformed } from './malformed.ts'
import { playModern } from './modern.ts'
import { playStreams } from './streams.ts'
import { playTools } from './tools.ts'
import { playVersions } from './versions.ts'

/** The chapters in order: the replies of a chapter may depend on earlier chapters. */
const chapters = [
  playVersions,
  playTools,
  playStreams,
  playBatches,
  playModern,
  playFailures,
  playMalformed,
  playControl,
] as const

export async function playAll(): Promise<readonly Exchange[]> {
  const stage = await startStage()
  try {
    const player = new Player(stage.known)
    for (const play of chapters) await play(player, stage)
    return player.exchanges
  } finally {
    await stage.stop()
  }
}
