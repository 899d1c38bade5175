import { z } from 'zod'
import type { Call } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { paramsOf } from '../../../protocol/jsonrpc.ts'
import { duration } from '../../../units/duration.ts'
import { canonical, joined } from '../../decide/canonical.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { changing, type ToolResult } from './change.ts'

/** Most replies that one fault remembers; the oldest are forgotten first. */
const MOST = 256

/** Longest reply that is remembered, in characters. */
const LONGEST = 64 * 1024

interface Earlier {
  readonly group: string
  readonly text: string
  readonly at: Millis
}

/** The first reply to each call of a tool, for one tenant: nobody gets to see what is another tenant's. */
class Replies {
  readonly #byKey = new Map<string, Earlier>()

  /** The reply to the same call; this one is remembered when it is the first. */
  first(key: string, reply: Earlier): Earlier | undefined {
    const known = this.#byKey.get(key)
    if (known !== undefined || reply.text.length > LONGEST) return known
    this.#byKey.set(key, reply)
    for (const oldest of this.#byKey.keys()) {
      if (this.#byKey.size <= MOST) break
      this.#byKey.delete(oldest)
    }
    return undefined
  }

  /** Replies of the same tool that are not like this one, oldest first. */
  unlike({ group, text }: Earlier): Earlier[] {
    return [...this.#byKey.values()].filter((earlier) => earlier.group === group && earlier.text !== text)
  }
}

interface Seen {
  readonly replies: Replies
  readonly now: Earlier
  /** The first reply to the same call; undefined when it is this one. */
  readonly same: Earlier | undefined
}

/** What there was before this reply. Errors are not remembered: they are no data of anything. */
function seen(shot: Shot, call: Call, result: ToolResult): Seen | string {
  if (result.isError === true) return 'the reply is an error of the tool'
  const args = canonical(paramsOf(call.message.value).arguments ?? {})
  if (args === undefined) return 'the arguments nest too deep'
  const group = joined(call.tenant, call.server, call.tool ?? '')
  const now = { group, text: JSON.stringify(result), at: shot.clock.now() }
  const replies = shot.memory('replies', () => new Replies())
  return { replies, now, same: replies.first(joined(group, args), now) }
}

const staleSchema = z.strictObject({
  age: duration().default(0).describe('How old a reply has to be at least.'),
})

/** The first reply since the fault was armed that it hit is the old one from then on. */
export const stale: FaultType<z.output<typeof staleSchema>> = {
  schema: staleSchema,
  about: 'An earlier reply to the same call, which has changed since.',
  layer: ({ age }, shot) =>
    changing(shot, (result, call) => {
      const found = seen(shot, call, result)
      if (typeof found === 'string') return found
      const { now, same } = found
      if (same === undefined) return 'no earlier reply to the same call'
      const ageMs = now.at - same.at
      if (ageMs < age) return `the earlier reply to the same call is ${Math.round(ageMs)} ms old only`
      if (same.text === now.text) return 'the reply has not changed since'
      return { result: JSON.parse(same.text) as ToolResult, note: { ageMs } }
    }),
}

const wrongEntitySchema = z.strictObject({})

/** What it hits is remembered, to be the wrong answer to another call later. */
export const wrongEntity: FaultType<z.output<typeof wrongEntitySchema>> = {
  schema: wrongEntitySchema,
  about: 'The reply to an earlier call of the same tool with other arguments.',
  layer: (_, shot) =>
    changing(shot, (result, call) => {
      const found = seen(shot, call, result)
      if (typeof found === 'string') return found
      const others = found.replies.unlike(found.now)
      const other = others[Math.floor(shot.draw('entity') * others.length)]
      if (other === undefined) return 'no earlier reply to other arguments'
      return { result: JSON.parse(other.text) as ToolResult, note: { ageMs: found.now.at - other.at } }
    }),
}
