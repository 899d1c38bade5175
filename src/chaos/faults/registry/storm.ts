import { z } from 'zod'
import type { Message } from '../../../mesh/call.ts'
import { notificationText, parseJson } from '../../../protocol/jsonrpc.ts'
import { duration } from '../../../units/duration.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { toolMethods } from './named-tools.ts'

/** Timers are no finer than this: what falls due meanwhile is told at once. */
const FINEST_MS = 10

const schema = z.strictObject({
  perSecond: z.number().gt(0).max(1_000).default(10).describe('Notifications in a second.'),
  duration: duration({ min: 1 }).default(10_000).describe('How long a storm takes.'),
})

type Config = z.output<typeof schema>

/** The call that sets it off goes on unharmed. */
export const listChangedStorm: FaultType<Config> = {
  schema,
  about: 'A server says over and over that its tools have changed.',
  methods: toolMethods,
  layer: (config, shot) => (next) => (call) => {
    const storm = shot.memory(`storm ${call.server}`, () => ({ on: false }))
    if (storm.on) shot.notApplicable(`there is a storm at ${call.server} already`)
    else {
      storm.on = true
      shot.note({ notifications: totalOf(config) })
      blow(config, call.server, shot, () => (storm.on = false))
    }
    return next(call)
  },
}

const totalOf = ({ perSecond, duration }: Config): number => Math.floor((perSecond * duration) / 1000)

/** Tells as many as are due, until the time is up or the shot is released. */
function blow({ perSecond, duration }: Config, server: string, shot: Shot, over: () => void): void {
  const { clock, released, world } = shot
  const text = notificationText('notifications/tools/list_changed')
  const message: Message = { text, value: parseJson(text) as Message['value'] }
  const startedAt = clock.now()
  const most = totalOf({ perSecond, duration })
  let told = 0
  let cancel = () => {}

  function end(): void {
    cancel()
    released.removeEventListener('abort', end)
    over()
  }
  function gust(): void {
    const elapsedMs = clock.now() - startedAt
    const due = Math.min(most, Math.floor((elapsedMs * perSecond) / 1000))
    for (; told < due; told++) world.tell(server, message)
    if (elapsedMs >= duration) return end()
    cancel = clock.after(Math.min(Math.max(1000 / perSecond, FINEST_MS), duration - elapsedMs), gust)
  }
  released.addEventListener('abort', end, { once: true })
  if (released.aborted) return end()
  gust()
}
