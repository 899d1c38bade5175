import { OtlpReceiver } from '../../test/support/otlp-receiver.ts'
import { ask } from './ask.ts'
import { astray } from './exemplars.ts'
import { drive } from './load.ts'
import { Prometheus } from './prometheus.ts'
import { command, startWorld } from './world.ts'

const LOAD_MS = 14_000
const AFTER_MS = 4_000

/** Whose exemplars are followed, over the whole run. */
const traced = { server: 'flaky', tools: ['read', 'typed', 'write'], seconds: 60 }

/** Everything that is wrong with dashboards and rules when they meet a real gateway and a real Prometheus. */
export async function live(folder: string, started: (prometheus: Prometheus) => void): Promise<string[]> {
  const receiver = await OtlpReceiver.start({ after: () => undefined })
  try {
    const stage = await startWorld(folder, receiver.url)
    const prometheus = await Prometheus.start(new URL(stage.control).host, folder)
    started(prometheus)
    const tasks = await drive(stage, LOAD_MS)
    await command(stage, '/admin/reload')
    await command(stage, '/admin/chaos/disarm')
    await stage.shaky.behave({ read: { failing: 1 } })
    await drive(stage, AFTER_MS / 2)
    // Probes of a server that is down come after longer and longer pauses: it is well again before these are long.
    await stage.shaky.behave({ read: {} })
    await drive(stage, AFTER_MS / 2)
    await command(stage, '/admin/chaos/arm')
    await drive(stage, AFTER_MS)
    const { asked, problems } = await ask(prometheus)
    console.log(`${tasks} tasks of agents; ${asked} queries and rules asked of a real Prometheus`)
    return [...problems, ...(await astray(prometheus, receiver, traced))]
  } finally {
    receiver.close()
  }
}
