/** Hostile agents, in their own process: attacks on order, for a limited time. */
import { setPriority } from 'node:os'
import { systemClock } from '../src/mesh/clock.ts'
import { attacks, open } from './hostile-attacks.ts'

export interface AttackOrder {
  readonly attack: string
  /** Origin of the gateway's data plane. */
  readonly origin: string
  /** Duration, in milliseconds. */
  readonly forMs: number
}

export interface AttackReport {
  readonly times: number
  /** Outcomes such as statuses of replies, each with its count. */
  readonly outcomes: Readonly<Record<string, number>>
}

// Runs with the lowest priority, like on other machines, so that the attack takes no CPU from measured processes.
setPriority(19)

async function attack({ attack: name, origin, forMs }: AttackOrder): Promise<AttackReport> {
  const { deed, atOnce, apart = false } = attacks[name]!
  const ofServer = name.startsWith('a server') || name.startsWith('replies')
  const begin = async () => {
    const session = await open(origin, ofServer ? 'hostile' : 'quiet')
    return { origin, port: Number(new URL(origin).port), session }
  }
  const shared = await begin()
  const outcomes: Record<string, number> = {}
  const until = systemClock.now() + forMs
  let times = 0
  const one = async () => {
    const target = apart ? await begin() : shared
    while (systemClock.now() < until) {
      const outcome = await deed(target).catch((error: Error) => error.name)
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
      times++
    }
  }
  await Promise.all(Array.from({ length: atOnce }, one))
  return { times, outcomes }
}

process.on('message', (order: AttackOrder) => {
  void attack(order).then((report) => process.send?.(report))
})
